"""`paddock volume`: directories that sandboxes share, and that outlive them."""

from collections.abc import Sequence

import click

from paddock.domain.ids import new_id
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.params import Size
from paddock.interfaces.cli.remote.asking import ask, listed
from paddock.interfaces.cli.remote.session import answer
from paddock.interfaces.client.server import segment


@click.group(cls=Noun)
def volume() -> None:
    """Directories that sandboxes share, and that outlive them.

    A sandbox mounts one when it is made: `paddock create --volume datasets:/mnt/data`.
    """


@volume.command()
@click.argument("name")
@click.option(
    "--size", "size_mib", type=Size(), help="The most that it holds, such as 500m or 20g."
)
@click.option("-p", "--provider", default="", metavar="NAME", help="Where it is kept.")
@output_options
@pass_invocation
def create(invocation: Invocation, /, name: str, *, size_mib: int | None, provider: str) -> None:
    """Make an empty one. Its name is printed."""
    wish = {"name": name, "size_mib": size_mib, "provider": provider}
    made = ask("POST", "/v1/volumes", json=wish, key=new_id("key"))
    answer(invocation, made, made["name"])


@volume.command("ls")
@output_options
@pass_invocation
def list_volumes(invocation: Invocation) -> None:
    """List the team's, newest first."""
    found = listed("/v1/volumes")
    if invocation.json:
        print_json({"volumes": found})
        return
    rows = ((v["name"], v["id"], v["provider"], _size(v["size_mib"])) for v in found)
    print_table(("NAME", "ID", "PROVIDER", "SIZE"), rows)


@volume.command()
@click.argument("name")
@output_options
@pass_invocation
def inspect(invocation: Invocation, name: str) -> None:
    """Say what is in one, and which sandboxes mount it."""
    found = ask("GET", f"/v1/volumes/{segment(name)}")
    lines = (
        f"name        {found['name']}",
        f"id          {found['id']}",
        f"provider    {found['provider']}",
        f"size        {_size(found['size_mib'])}",
        f"used        {found['used_bytes'] / (1 << 20):.1f} MiB",
        f"mounted by  {', '.join(found['mounted_by']) or '–'}",
        f"created     {found['created_at']}",
    )
    answer(invocation, found, "\n".join(lines))


@volume.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-f", "--force", is_flag=True, help="Also while sandboxes mount it.")
@output_options
@pass_invocation
def rm(invocation: Invocation, /, names: Sequence[str], *, force: bool) -> None:
    """Remove volumes with everything in them.

    One that sandboxes mount is kept, unless --force is given: they go on with an empty directory,
    and start without it.
    """
    for name in names:
        ask("DELETE", f"/v1/volumes/{segment(name)}", query={"force": force or None})
    answer(invocation, {"removed": list(names)}, "\n".join(f"{name} removed" for name in names))


def _size(mib: int | None) -> str:
    return "–" if mib is None else f"{mib / 1024:g} GiB" if mib >= 1024 else f"{mib} MiB"
