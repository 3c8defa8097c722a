"""`paddock version`."""

import json
import platform

import click

from paddock import __version__
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options


@click.command()
@click.option("--check", is_flag=True, help="Ask the package index for a newer one.")
@output_options
@pass_invocation
def version(invocation: Invocation, check: bool) -> None:
    """Print the version.

    With --check, the index of update_check_url is asked, or else that of pip or uv. Nothing of this
    installation goes there.
    """
    told: dict[str, object] = {"version": __version__, "python": platform.python_version()}
    newest = _newest(invocation) if check else ""
    if check:
        told |= {"latest": newest or None, "newer": _is_newer(newest)}
    if invocation.json:
        click.echo(json.dumps(told))
        return
    click.echo(f"paddock {__version__}")
    if check:
        newer = f"paddock {newest} is out" if told["newer"] else "this is the newest release"
        click.echo(newer)


def _newest(invocation: Invocation) -> str:
    from paddock.interfaces.cli.updates import find_index, latest  # only who asks needs it

    return run_async(latest(find_index(invocation.tools.update_check_url)))


def _is_newer(found: str) -> bool:
    from paddock.interfaces.cli.updates import is_newer

    return is_newer(found)
