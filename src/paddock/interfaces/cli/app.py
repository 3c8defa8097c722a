"""The `paddock` command: what it is given, what it hands on, and how it ends."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from paddock import __version__
from paddock.interfaces.cli.failures import fail, refuse
from paddock.interfaces.cli.invocation import Invocation, MakeToolbox, pass_invocation
from paddock.interfaces.cli.noun import Noun

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


@click.group(
    cls=Noun, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--config", type=click.Path(path_type=Path), help="Settings file to read.")
@click.option("--log-level", type=click.Choice(_LEVELS), help="How much is logged to stderr.")
@click.version_option(__version__, "-V", "--version", message="%(version)s")
@pass_invocation
def cli(invocation: Invocation, config: Path | None, log_level: str | None) -> None:
    """Fenced sandboxes for AI coding agents, on your own machine."""
    _check_exists(config)
    invocation.config, invocation.log_level = config, log_level


def _check_exists(config: Path | None) -> None:
    """Most commands only talk to a server and never read the file: a typo must not go unnoticed."""
    named = os.environ.get("PADDOCK_CONFIG")
    origin = "--config" if config else "PADDOCK_CONFIG"
    asked = config or (Path(named) if named else None)
    if asked is not None and not asked.is_file():
        kind = "is not a file" if asked.exists() else "does not exist"
        refuse(f"{origin}: {asked} {kind}", f"name a file, or leave {origin} out")


_HERE = "paddock.interfaces.cli"
_THERE = f"{_HERE}.remote"
COMMANDS = (
    Lazy(
        "agents",
        f"{_THERE}.agents:agents",
        "Who does the work of tasks, and what each needs before it can.",
    ),
    Lazy(
        "approvals",
        f"{_THERE}.approvals:approvals",
        "What people are asked: may a sandbox reach a host, run a command; may a task go on.",
    ),
    Lazy(
        "archive",
        f"{_THERE}.moving:archive",
        "Compress the disks of stopped sandboxes; `start` brings them back.",
    ),
    Lazy("audit", f"{_THERE}.auditing:audit", "Say who did what in the team, oldest first."),
    Lazy(
        "completion",
        f"{_HERE}.completion:completion",
        "Print what completes `paddock …` in a shell.",
    ),
    Lazy(
        "config",
        f"{_THERE}.configuring:config",
        "What is set for the team and its apps, and can be read.",
    ),
    Lazy(
        "connect",
        f"{_THERE}.connecting:connect",
        "Print what makes another vendor's SDK use this server.",
    ),
    Lazy("cp", f"{_THERE}.carrying:cp", "Copy a file or directory into a sandbox or out of it."),
    Lazy("create", f"{_THERE}.making:create", "Make a sandbox."),
    Lazy("doctor", f"{_HERE}.doctor:doctor", "Say whether sandboxes can run here."),
    Lazy("egress", f"{_THERE}.egress:egress", "What sandboxes may reach, and what they reached."),
    Lazy("events", f"{_THERE}.history:events", "Say what happened, oldest first."),
    Lazy("exec", f"{_THERE}.executing:exec_", "Run a command in a sandbox."),
    Lazy("fork", f"{_THERE}.copies:fork", "Make a second sandbox with a copy of the disk."),
    Lazy("group", f"{_THERE}.groups:group", "The sandboxes that share an identity."),
    Lazy(
        "health",
        f"{_THERE}.status:health",
        "Say how sandboxes are and how quickly they answer; those that sleep are not woken.",
    ),
    Lazy(
        "here",
        f"{_THERE}.worktree.commands:here",
        "Run a command in the sandbox of this worktree.",
    ),
    Lazy("history", f"{_THERE}.story:history", "Tell the course of a sandbox, step by step."),
    Lazy("inspect", f"{_THERE}.looking:inspect", "Say everything about sandboxes."),
    Lazy(
        "kill",
        f"{_THERE}.executing:kill",
        "End a command in a sandbox, with everything it started.",
    ),
    Lazy("login", f"{_THERE}.people:login", "Sign in to the console with a browser."),
    Lazy("logs", f"{_THERE}.executing:logs", "Show what a command said."),
    Lazy("ls", f"{_THERE}.looking:list_sandboxes", "List your team's sandboxes, newest first."),
    Lazy(
        "models",
        f"{_THERE}.models:models",
        "What sandboxes took of model APIs, and what that costs.",
    ),
    Lazy("open", f"{_THERE}.looking:open_port", "Open a port in a browser."),
    Lazy("pause", f"{_THERE}.moving:pause", "Freeze sandboxes, memory and all."),
    Lazy("person", f"{_THERE}.people:person", "The people of the team."),
    Lazy("policy", f"{_THERE}.policies:policy", "Which commands may be run in sandboxes."),
    Lazy("ports", f"{_THERE}.looking:ports", "List where programs inside listen."),
    Lazy("ps", f"{_THERE}.executing:ps", "List the commands of a sandbox."),
    Lazy(
        "purge",
        f"{_THERE}.purging:purge",
        "Remove all that belongs to an owner or an app, and forget them.",
    ),
    Lazy(
        "quarantine",
        f"{_THERE}.quarantine:quarantine",
        "Sandboxes that were set aside: nobody but an admin goes in.",
    ),
    Lazy("resume", f"{_THERE}.moving:resume", "Let paused sandboxes go on."),
    Lazy("rm", f"{_THERE}.moving:rm", "Remove sandboxes with everything in them."),
    Lazy("run", f"{_THERE}.running:run", "Run a command in a disposable sandbox of the server."),
    Lazy(
        "sandbox",
        f"{_HERE}.sandboxes:sandbox",
        "Sandboxes without a server, straight on a provider.",
    ),
    Lazy(
        "secrets",
        f"{_THERE}.configuring:secrets",
        "What is set for the team and its apps, and is never shown again.",
    ),
    Lazy("session", f"{_THERE}.people:session", "Who is signed in with a browser."),
    Lazy(
        "settings",
        f"{_THERE}.adjusting:settings",
        "What is in effect on the server, and where it comes from.",
    ),
    Lazy("snapshot", f"{_THERE}.copies:snapshot", "What is kept of sandboxes' disks."),
    Lazy("ssh", f"{_THERE}.ssh:ssh", "Log in to a sandbox with ssh, or run a command there."),
    Lazy("start", f"{_THERE}.moving:start", "Start stopped sandboxes."),
    Lazy(
        "status",
        f"{_THERE}.status:status",
        "Say how everything is: servers, tasks, strays, quarantine, cost, audit log, providers.",
    ),
    Lazy("stop", f"{_THERE}.moving:stop", "Stop sandboxes; the disk is kept."),
    Lazy("task", f"{_THERE}.tasks:task", "What agents are to do, and what comes of it."),
    Lazy("team", f"{_THERE}.access:team", "Teams: what belongs to one does not exist for another."),
    Lazy("template", f"{_HERE}.templates:template", "What sandboxes start from."),
    Lazy(
        "test-model",
        f"{_THERE}.scripted_model:test_model",
        "Run agents with a scripted model.",
    ),
    Lazy("token", f"{_THERE}.access:token", "Who may come in, and for what."),
    Lazy("up", f"{_HERE}.up:up", "Start the control plane."),
    Lazy("version", f"{_HERE}.version:version", "Print the version."),
    Lazy(
        "volume",
        f"{_THERE}.volumes:volume",
        "Directories that sandboxes share, and that outlive them.",
    ),
    Lazy(
        "worktree",
        f"{_THERE}.worktree.commands:worktree",
        "The sandbox of a git worktree: the directory says which one is meant.",
    ),
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
