"""`paddock sandbox preflight`: whether what a template or snapshot promises is really in it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from paddock.domain.errors import Broken, PaddockError
from paddock.domain.ids import new_ulid
from paddock.domain.snapshot import SnapshotRef
from paddock.guest_client import Guest
from paddock.interfaces.cli import references
from paddock.interfaces.cli.failures import FAILED, refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options, provider_option
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.params import Seconds
from paddock.interfaces.cli.progress import Display
from paddock.ports.provider import Provider, SandboxSpec

_TOOLS = ("sh", "git", "curl", "python3", "node", "npm")
# Looked for as a command would be, with the PATH that commands have; a file must be executable.
_LOOK = """
for tool in "$@"; do
    place=$(command -v "$tool" 2>/dev/null) || place=
    case $place in /*) [ -x "$place" ] || place= ;; esac
    printf '%s\\n' "$place"
done
"""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that is to be there, and where it is."""

    name: str
    path: str

    @property
    def is_there(self) -> bool:
        return bool(self.path)


@click.command()
@click.option("--template", default="base", show_default=True, help="What is looked at.")
@click.option("--snapshot", default="", metavar="ID", help="Instead of a template.")
@click.option("--tool", "tools", multiple=True, default=_TOOLS, show_default=True)
@click.option("--timeout", type=Seconds(), default="60s", show_default=True, help="For the look.")
@provider_option
@output_options
@pass_invocation
def preflight(
    invocation: Invocation,
    /,
    provider: str,
    template: str,
    *,
    snapshot: str,
    tools: Sequence[str],
    timeout: float,
) -> int:
    """Say whether the tools that agents need are in a template or a snapshot.

    A sandbox is made of it, looked at as the user that commands run as, and removed. The exit code
    is 1 when a tool is missing, in every form of output.
    """
    if any(not tool or "\n" in tool for tool in tools):
        refuse("--tool was given without a name", "name a program, or its path")

    async def work() -> list[Tool]:
        place, _, identifier = snapshot.rpartition("/")
        with Display() as display:
            async with invocation.tools.open(place or provider, display.tell) as opened:
                spec = SandboxSpec(template=template, labels={"made-by": "paddock-preflight"})
                if snapshot:
                    source = SnapshotRef(opened.provider.name, identifier)
                    spec = SandboxSpec(snapshot=source, labels=spec.labels)
                else:
                    await opened.prepare(template)
                return await _look(opened.provider, spec, tools, timeout)

    found = run_async(work())
    passed = all(tool.is_there for tool in found)
    if invocation.json:
        looked = {"snapshot": snapshot} if snapshot else {"template": template}
        rows = [{**asdict(tool), "found": tool.is_there} for tool in found]
        print_json({**looked, "passed": passed, "tools": rows})
    else:
        print_table(("TOOL", "PATH"), ((tool.name, tool.path or "missing") for tool in found))
    return 0 if passed else FAILED


async def _look(
    provider: Provider, spec: SandboxSpec, tools: Sequence[str], timeout: float
) -> list[Tool]:
    seen = await provider.create(f"cli-{new_ulid()}", spec)
    try:
        async with Guest(await provider.guest(seen.ref)) as guest:
            done = await guest.exec(["/bin/sh", "-c", _LOOK, "sh", *tools], timeout=timeout)
    finally:
        try:
            await provider.destroy(seen.ref)
        except PaddockError as error:
            name = references.shown(seen.ref)
            raise Broken(
                f"sandbox {name} was not removed: {error.message}",
                remediation=f"paddock sandbox rm {name}",
            ) from error
    places = done.stdout.decode(errors="replace").split("\n")
    if done.exit_code != 0 or len(places) != len(tools) + 1:
        raise Broken(f"the look inside ended with {done.exit_code}: {done.stderr[-300:]!r}")
    return [Tool(name, place) for name, place in zip(tools, places[:-1], strict=True)]
