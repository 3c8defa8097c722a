"""`paddock create`, and what a new sandbox can be told."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.params import Number, Seconds, Size, environment, pairs
from paddock.interfaces.cli.remote.creation import created
from paddock.interfaces.cli.remote.session import answer, connected
from paddock.interfaces.client import SandboxInfo

F = TypeVar("F", bound=Callable[..., Any])
_PASSED = (
    "name",
    "snapshot",
    "provider",
    "timeout",
    "on_timeout",
    "idle_timeout",
    "keep_alive",
    "cpus",
    "memory_mib",
    "disk_mib",
    "pids",
    "network",
    "ports",
    "runtime",
    "owner",
    "app",
)


def creation_options(command: F) -> F:
    """What a new sandbox shall be; what is not said is left to the server."""
    for decorate in (
        click.option("--runtime", type=click.Choice(["crun", "runc", "runsc"]), default=None),
        click.option("--port", "ports", multiple=True, type=click.IntRange(1, 65535)),
        click.option(
            "--network", type=click.Choice(["none", "allowlist", "open"]), help="To outside."
        ),
        click.option(
            "--volume", "volumes", multiple=True, metavar="NAME:PATH[:ro]", help="Mount it there."
        ),
        click.option("--pids", type=click.IntRange(8), help="Most processes."),
        click.option("--disk", "disk_mib", type=Size(), help="Disk, such as 500m or 20g."),
        click.option("--memory", "memory_mib", type=Size(), help="Memory, such as 512m or 2g."),
        click.option("--cpus", type=Number(), help="Processors, such as 0.5 or 2."),
        click.option("--keep-alive", type=Seconds(), help="Not idle for so long."),
        click.option("--idle-timeout", type=Seconds(), help="Stopped after so long without work."),
        click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="To find it."),
        click.option("--owner", default="", help="Whose it is; `paddock purge` forgets them."),
        click.option("-p", "--provider", default="", metavar="NAME", help="Where it runs."),
        click.option("--app", default="", help="Whose configuration its programs have."),
        click.option("--snapshot", default="", help="Start from a snapshot."),
        click.option("--template", default="", help="Start from a template.  [default: base]"),
        click.option("--name", default="", help="1 to 63 of a-z, 0-9 and '-'."),
    ):
        command = decorate(command)
    return command


def creation(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `creation_options` as AsyncSandbox.create takes them."""
    if options["template"] and options["snapshot"]:
        refuse("--template and --snapshot were given", "a sandbox starts from one of them")
    given = {name: options[name] for name in _PASSED if options.get(name) not in (None, "")}
    labels = pairs(options["labels"], "--label")
    volumes = mounts(options["volumes"])
    return {**given, "template": options["template"], "labels": labels, "volumes": volumes}


def mounts(words: Sequence[str]) -> dict[str, str]:
    """From NAME:PATH[:ro] to what AsyncSandbox.create takes."""
    found = {}
    for word in words:
        name, _, rest = word.partition(":")
        path, _, how = rest.partition(":")
        if not name or not path.startswith("/") or how not in ("", "ro"):
            refuse(f"--volume {word!r} cannot be read", "write NAME:/PATH, or NAME:/PATH:ro")
        found[path] = f"{name}:ro" if how else name
    return found


@click.command()
@creation_options
@click.option("--identity", default="", metavar="ID", help="The one that has it, if any.")
@click.option("--group", default="", metavar="ID", help="A further one with this identity.")
@click.option("--timeout", type=Seconds(), help="Its time is up after so long.")
@click.option("--on-timeout", type=click.Choice(["kill", "pause", "stop"]), help="Then so.")
@click.option("--always-on", is_flag=True, help="Never idle.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="For every command.")
@click.option("--env-file", multiple=True, type=click.Path(), help="Lines of NAME=VALUE.")
@output_options
@pass_invocation
def create(invocation: Invocation, /, **options: Any) -> None:
    """Make a sandbox.

    Its name is printed. It runs until its time is up, it has been without work for too long, or
    `paddock rm`. If its template has to be built first, the progress is shown. After an interrupt
    the server still creates it; the message says how to cancel that.

    With --identity, asking again gives the same one, in whatever state it is; with --group there
    may be several, and `paddock group overlaps` says who edited the same files.
    """
    if options["identity"] and options["group"]:
        refuse("--identity and --group were given", "it is the one that has it, or a further one")
    wish = creation(options)
    wish["identity"] = options["identity"] or options["group"]
    wish["another"] = bool(options["group"]) or None
    wish["env"] = environment(options["env"], options["env_file"])
    wish["always_on"] = options["always_on"] or None

    async def work() -> SandboxInfo:
        async with connected() as server:
            made = await created(server, wish, quiet=invocation.json)
            return await made.info()

    info = run_async(work())
    answer(invocation, info, info.name)
