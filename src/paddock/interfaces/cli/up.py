"""`paddock up`: the control plane, until it is told to stop."""

import asyncio
import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click

from paddock.interfaces.cli.interrupts import run_until_stopped
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.toolbox import ServerWish

_TRY = """
Try, in another terminal:
  paddock run -- python3 -c 'print("hello from a sandbox")'
  paddock create --name demo && paddock exec demo -- uname -a
  paddock ssh demo
  paddock ls
"""


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port, 0 for any.  [default: 7070]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where everything is kept.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file to read.")
@click.option("--no-auth", is_flag=True, help="Let everyone on this machine in.")
@pass_invocation
def up(
    invocation: Invocation,
    *,
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    config: Path | None,
    no_auth: bool,
) -> None:
    """Start the control plane.

    Prints `ready URL` once everything answers. Sandboxes go on when it stops.
    """
    invocation.config = config or invocation.config
    wish = ServerWish(host=host, port=port, data_dir=data_dir, auth=not no_auth)

    def ready(url: str) -> None:
        click.echo(f"ready {url}")
        click.echo(_TRY, err=True)

    with Display() as display:
        run_until_stopped(_served(invocation, wish, display, ready))
    _leave()


def _leave() -> NoReturn:
    """All that was open is closed. What remains is an interpreter with a hundred thousand objects,
    and taking those apart one by one would be the longest part of stopping."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


async def _served(
    invocation: Invocation, wish: ServerWish, display: Display, ready: Callable[[str], None]
) -> None:
    """While it runs, it may say that there is a newer version."""
    from paddock.interfaces.cli.updates import tell

    tools = invocation.tools

    def say(notice: str) -> None:
        click.echo(f"note: {notice}", err=True)

    telling = asyncio.create_task(tell(tools.update_check_url, say), name="update notice")
    try:
        await tools.serve(wish, display.tell, ready)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
