"""`paddock connect`: what makes another vendor's SDK use this server instead of its own."""

import shlex
from urllib.parse import urlsplit

import click

from paddock.domain.ids import new_id
from paddock.domain.team import Role
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.remote.session import connected
from paddock.interfaces.client.place import find_place

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_TOKEN_NAME = "e2b"  # noqa: S105 - what it is called
_NO_KEY = "e2b_" + "0" * 40
"""For a server that asks nobody who they are: the SDKs insist on one."""


@click.group(cls=Noun)
def connect() -> None:
    """Print what makes another vendor's SDK use this server."""


@connect.command()
@click.option(
    "--token",
    metavar="NAME",
    default="",
    help="Create a member's token with this name and print it.",
)
@output_options
@pass_invocation
def e2b(invocation: Invocation, token: str) -> None:
    """Print the variables for E2B's SDKs: eval "$(paddock connect e2b)".

    An admin's token is never printed: the command creates a member's token named `e2b` instead. A
    member's own token is printed, unless --token creates another. The command checks
    the connection before it prints anything.
    """
    url, key, made = run_async(_checked(token))
    if made:
        click.echo(
            f"note: created the token {made}; revoke it with `paddock token revoke {made}`",
            err=True,
        )
    variables = {
        "E2B_API_URL": url,
        "E2B_SANDBOX_URL": url,
        "E2B_VOLUME_API_URL": url,
        "E2B_API_KEY": key,
        "E2B_VALIDATE_API_KEY": "false",
    }
    if urlsplit(url).hostname in _LOOPBACK:
        # Python's SDK would ask a proxy of the environment for this very machine.
        variables["NO_PROXY"] = "127.0.0.1,localhost"
    if invocation.json:
        print_json(variables)
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")


async def _checked(token_name: str) -> tuple[str, str, str]:
    """Return the server's address, a key for it, and the id of the token if it is a new one."""
    own = find_place().token
    async with connected() as server:
        role = (await server.call("GET", "/v1/me"))["role"]
        if token_name or (own and role == Role.ADMIN):
            wish = {"name": token_name or _TOKEN_NAME}
            made = await server.call("POST", "/v1/tokens", json=wish, key=new_id("key"))
            return server.url, str(made["token"]), str(made["id"])
        return server.url, own or _NO_KEY, ""
