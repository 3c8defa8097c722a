"""`paddock ssh`: into a sandbox with the ssh client that everybody has."""

import os
import shlex
import shutil
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import age, print_json, print_table
from paddock.interfaces.cli.params import Seconds
from paddock.interfaces.cli.remote.session import (
    answer,
    connected,
    gathered,
    sandbox_argument,
)
from paddock.interfaces.cli.remote.ssh_keys import Way, way_in
from paddock.interfaces.client.server import segment, without_nothing


@click.command()
@click.option("-u", "--user", default="", help="Log in as this user of the sandbox.")
@click.option("--expires", type=Seconds(), help="How long the key or token lasts.  [default: 1h]")
@click.option(
    "-L", "--forward", multiple=True, metavar="PORT:localhost:PORT", help="A port of the sandbox."
)
@click.option("-N", "--no-command", is_flag=True, help="Only forward ports.")
@click.option("--config", is_flag=True, help="Print a block for ~/.ssh/config, for other tools.")
@click.option("--token", is_flag=True, help="Print a token, for clients on other machines.")
@click.option("--list", "listed", is_flag=True, help="List who may come in.")
@click.option("--revoke", metavar="ID|all", help="End one way in, or all of them.")
@click.option("--renew", is_flag=True, hidden=True, help="Make the key last; print nothing.")
@output_options
@sandbox_argument
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [CMD...]")
@pass_invocation
def ssh(invocation: Invocation, /, name: str, words: Sequence[str], **options: Any) -> None:
    """Log in to a sandbox with ssh, or run a command there.

    A key is made for this sandbox and registered for an hour; the server's own key is checked. With
    --config the same works for scp, rsync, sftp and editors, under the name `paddock-SANDBOX`.
    """
    if options["listed"]:
        _list(invocation, name)
    elif options["revoke"]:
        _revoke(invocation, name, options["revoke"])
    elif options["token"]:
        _token(invocation, name, options)
    else:
        way, url = _way(name, options)
        if options["config"]:
            answer(invocation, way.access, way.block(name, url).rstrip())
        elif not options["renew"]:
            _become_ssh(way, words, options)


def _way(name: str, options: dict[str, Any]) -> tuple[Way, str]:
    async def work() -> tuple[Way, str]:
        async with connected() as server:
            way = await way_in(server, name, user=options["user"], lasts_s=options["expires"])
            return way, server.url

    return run_async(work())


def _become_ssh(way: Way, words: Sequence[str], options: dict[str, Any]) -> None:
    program = shutil.which("ssh")
    if program is None:
        refuse(
            "there is no ssh here", "install openssh-client, or use `paddock exec -t NAME -- bash`"
        )
    forwards = [f"-L{each}" for each in options["forward"]]
    flags = ["-N"] if options["no_command"] else []
    # One word is a line for the shell, as with ssh; several are one command's, each as it is.
    command = list(words) if len(words) < 2 else [shlex.join(words)]
    os.execv(program, [program, *forwards, *flags, *way.arguments(), *command])  # noqa: S606 - its terminal is ours


def _token(invocation: Invocation, name: str, options: dict[str, Any]) -> None:
    wish = without_nothing(reveal=True, lasts_s=options["expires"], user=options["user"] or None)
    made = _ask("POST", name, json=wish)
    answer(invocation, made, made["token"])
    if not invocation.json:
        click.echo(
            f"note: the password for `{made['command']}` until {made['expires_at'][:16]}; "
            "it is not shown again",
            err=True,
        )


def _list(invocation: Invocation, name: str) -> None:
    async def work() -> list[Any]:
        async with connected() as server:
            return await gathered(server.pages(f"/v1/sandboxes/{segment(name)}/ssh", {}))

    found = run_async(work())
    if invocation.json:
        print_json({"accesses": found})
        return
    print_table(
        ("ACCESS", "BY", "FINGERPRINT", "AGE", "STATE"),
        ((a["id"], a["proof"], a["fingerprint"], _age(a), _state(a)) for a in found),
    )


def _revoke(invocation: Invocation, name: str, which: str) -> None:
    if which == "all":
        done = _ask("DELETE", name)
        answer(invocation, done, f"{done['revoked']} revoked")
        return
    answer(invocation, _ask("DELETE", name, f"/{segment(which)}"), f"{which} revoked")


def _ask(method: str, name: str, rest: str = "", **more: Any) -> Any:
    async def work() -> Any:
        async with connected() as server:
            return await server.call(method, f"/v1/sandboxes/{segment(name)}/ssh{rest}", **more)

    return run_async(work())


def _age(access: dict[str, Any]) -> str:
    return age(datetime.fromisoformat(access["created_at"]).timestamp())


def _state(access: dict[str, Any]) -> str:
    if access["revoked_at"]:
        return "revoked"
    ends = datetime.fromisoformat(access["expires_at"])
    return "expired" if ends <= datetime.now(ends.tzinfo) else f"until {access['expires_at'][:16]}"
