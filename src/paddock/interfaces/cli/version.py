"""`paddock version`."""

import json
import platform

import click

from paddock import __version__
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options


@click.command()
@output_options
@pass_invocation
def version(invocation: Invocation) -> None:
    """Print the version."""
    if invocation.json:
        click.echo(json.dumps({"version": __version__, "python": platform.python_version()}))
    else:
        click.echo(f"paddock {__version__}")
