"""`paddock sandbox run`: one command in a disposable sandbox, without a server."""

import base64
from dataclasses import replace
from typing import Any

import click

from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.guest import CommandResult
from paddock.domain.sandbox import Resources
from paddock.interfaces.cli import disposable, references
from paddock.interfaces.cli.cloning import PLACE, repository_of, repository_options
from paddock.interfaces.cli.command import Wish, explain
from paddock.interfaces.cli.disposable import Record, Request
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import (
    PAYLOAD,
    command_options,
    output_options,
    provider_option,
    wish,
)
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.params import CopyPair, Number, Size, pairs
from paddock.ports.provider import SandboxSpec

_NETWORK = click.Choice([mode.value for mode in NetworkMode])
_LIMITS = ("cpus", "memory_mib", "disk_mib", "pids")


def limit_options(command: Any) -> Any:
    usual = Resources()
    for option, name, kind, text in (
        ("--pids", "pids", int, "Most processes."),
        ("--disk", "disk_mib", Size(), "Disk, such as 500m or 20g."),
        ("--memory", "memory_mib", Size(), "Memory, such as 512m or 2g."),
        ("--cpus", "cpus", Number(), "Processors, such as 0.5 or 2."),
    ):
        default = getattr(usual, name)
        shown = f"{default}m" if name.endswith("mib") else f"{default:g}"
        decorate = click.option(
            option, name, type=kind, default=default, show_default=shown, help=text
        )
        command = decorate(command)
    return command


@click.command(context_settings=PAYLOAD)
@click.option("--template", default="base", show_default=True, help="What it starts from.")
@click.option("--network", type=_NETWORK, default="none", show_default=True, help="To outside.")
@click.option("--runtime", default="", help="crun, runc or runsc.")
@repository_options
@click.option("--copy", "copies", type=CopyPair(), multiple=True, help="Copy SRC to DST inside.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="To find it by.")
@click.option("--keep", is_flag=True, help="Do not remove the sandbox; its name is printed.")
@limit_options
@provider_option
@command_options
@output_options
@pass_invocation
def run(invocation: Invocation, /, provider: str, **options: Any) -> int:
    """Run a command in a disposable sandbox.

    The sandbox is made, used and removed; no server is needed. What stands after `--` belongs to
    the command, its --help included; a single argument with spaces in it goes to the sandbox's
    shell. Without --tty the streams are passed on as they are, bytes and all.

    \b
    Exit codes: the command's own, or
      124  the deadline passed
      126  the program cannot be executed
      127  there is no such program
      137  killed; stderr says so when memory ran out
      130  interrupted (128 and the signal's number)
        1  the sandbox could not be made, used or removed
        2  the request makes no sense
    """
    repository = repository_of(options)
    asked = wish(options)
    request = Request(
        provider,
        _spec(options, asked),
        # Variables are the whole sandbox's, so that they are there when it is kept.
        replace(asked, env={}, workdir=asked.workdir or (PLACE if repository else "")),
        options["copies"],
        keep=options["keep"],
        buffered=invocation.json,
        repository=repository,
    )
    record = run_async(disposable.run(invocation.tools, request))
    if invocation.json:
        print_json(_as_json(request, record))
    else:
        explain(record.result, request.wish, request.spec.resources.memory_mib)
    return record.result.exit_code


def _spec(options: dict[str, Any], asked: Wish) -> SandboxSpec:
    return SandboxSpec(
        template=options["template"],
        resources=Resources(**{name: options[name] for name in _LIMITS}),
        env=asked.env,
        labels={**disposable.LABELS, **pairs(options["labels"], "--label")},
        egress=EgressPolicy(NetworkMode(options["network"])),
        runtime=options["runtime"],
    )


def _as_json(request: Request, record: Record) -> dict[str, object]:
    return {
        "sandbox": references.shown(record.ref),
        "command": list(request.wish.argv),
        "repo": request.repository.plain_url if request.repository else None,
        **result_as_json(record.result),
        "seconds": round(record.seconds, 3),
        "kept": request.keep,
    }


def result_as_json(result: CommandResult) -> dict[str, object]:
    """Output that is no text is given as base64, so that none of it is lost."""
    content: dict[str, object] = {"exit_code": result.exit_code, "reason": result.reason}
    for name in ("stdout", "stderr"):
        data: bytes = getattr(result, name)
        try:
            content[name] = data.decode()
        except UnicodeDecodeError:
            content[f"{name}_base64"] = base64.b64encode(data).decode()
    return {**content, "truncated": result.truncated}
