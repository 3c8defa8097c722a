"""`paddock template pool`: how many sandboxes of a template wait ready on the server."""

import click

from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.remote.asking import ask
from paddock.interfaces.cli.remote.session import answer
from paddock.interfaces.client.server import segment


@click.command()
@click.argument("name")
@click.option("--size", type=click.IntRange(0), help="So many from now on.")
@click.option("--reset", is_flag=True, help="As many as the configuration says.")
@click.option("-p", "--provider", default="", metavar="NAME", help="Where.")
@output_options
@pass_invocation
def pool(
    invocation: Invocation, /, name: str, *, size: int | None, reset: bool, provider: str
) -> None:
    """Say how many sandboxes of a template wait ready on the server, or change it.

    It grows or shrinks at once, and outlives a restart. While memory is short fewer are kept.
    """
    path, query = f"/v1/templates/{segment(name)}/pool", {"provider": provider or None}
    if size is None and not reset:
        found = ask("GET", path, query=query)
    else:
        found = ask("PATCH", path, json={"size": None if reset else size}, query=query)
    short = f"; memory is short, {found['kept']} are kept" if found["kept"] < found["size"] else ""
    line = f"{found['ready']} of {found['size']} ready ({found['source']}){short}"
    answer(invocation, found, line)
