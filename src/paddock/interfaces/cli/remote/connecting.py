"""`paddock connect`: what makes another vendor's SDK use this server instead of its own."""

import shlex
from urllib.parse import urlsplit

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.remote.session import connected
from paddock.interfaces.client.place import find_place

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NO_KEY = "e2b_" + "0" * 40
"""For a server that asks nobody who they are: the SDKs insist on one."""


@click.group(cls=Noun)
def connect() -> None:
    """Print what makes another vendor's SDK use this server."""


@connect.command()
@click.option(
    "--token", metavar="NAME", default="", help="Make a member's token of this name for it."
)
@output_options
@pass_invocation
def e2b(invocation: Invocation, token: str) -> None:
    """Print the variables for E2B's SDKs: eval "$(paddock connect e2b)".

    The key is the token that this command uses itself, unless --token makes another. The server is
    asked first, so that what is printed works.
    """
    url, key = run_async(_checked(token))
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


async def _checked(token_name: str) -> tuple[str, str]:
    """Where the server is, and a key that opens it."""
    place = find_place()
    async with connected() as server:
        if token_name:
            made = await server.call("POST", "/v1/tokens", json={"name": token_name})
            return server.url, str(made["token"])
        await server.call("GET", "/v1/sandboxes?limit=1")
        return server.url, place.token or _NO_KEY
