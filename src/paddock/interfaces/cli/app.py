"""The `paddock` command: what it is given, what it hands on, and how it ends."""

import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from paddock import __version__
from paddock.interfaces.cli.failures import fail
from paddock.interfaces.cli.invocation import Invocation, MakeToolbox, pass_invocation

_LEVELS = ["debug", "info", "warning", "error"]


class Lazy(click.Command):
    """A command whose module is imported when it is used: `paddock --help` has to be quick."""

    def __init__(self, name: str, target: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self._target = target

    def load(self) -> click.Command:
        command: click.Command = resolve_name(self._target)
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> click.Context:
        return self.load().make_context(info_name, args, parent=parent, **extra)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--config", type=click.Path(path_type=Path), help="Settings file to read.")
@click.option("--log-level", type=click.Choice(_LEVELS), help="How much is logged to stderr.")
@click.version_option(__version__, "-V", "--version", message="%(version)s")
@pass_invocation
def cli(invocation: Invocation, config: Path | None, log_level: str | None) -> None:
    """Fenced sandboxes for AI coding agents, on your own machine."""
    invocation.config, invocation.log_level = config, log_level


_HERE = "paddock.interfaces.cli"
COMMANDS = (
    Lazy("doctor", f"{_HERE}.doctor:doctor", "Say whether sandboxes can run here."),
    Lazy("sandbox", f"{_HERE}.sandboxes:sandbox", "Make, use and remove sandboxes."),
    Lazy("snapshot", f"{_HERE}.snapshots:snapshot", "What was kept of sandboxes' disks."),
    Lazy("template", f"{_HERE}.templates:template", "What sandboxes start from."),
    Lazy("up", f"{_HERE}.up:up", "Start the control plane."),
    Lazy("version", f"{_HERE}.version:version", "Print the version."),
)
for _command in COMMANDS:
    cli.add_command(_command)


def run(make: MakeToolbox, arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command line; whatever goes wrong is said on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    invocation = Invocation(make)
    try:
        result = cli.main(given, prog_name="paddock", standalone_mode=False, obj=invocation)
        return result if isinstance(result, int) else 0
    except BaseException as error:  # noqa: BLE001 - the one boundary of this program
        return fail(error, invocation, given)
