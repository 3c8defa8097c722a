"""`paddock sandbox run`: one command in a disposable sandbox, without a server."""

import base64
from dataclasses import replace
from typing import Any

import click

from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.guest import CommandResult
from paddock.domain.sandbox import Resources
from paddock.interfaces.cli import disposable, references
from paddock.interfaces.cli.command import explain
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
from paddock.interfaces.cli.params import Copy, CopyPair, Number, Size, pairs
from paddock.ports.provider import SandboxSpec

_LIMITS = ("cpus", "memory_mib", "disk_mib", "pids")


def limit_options(command: Any) -> Any:
    usual = Resources()
    for option, name, kind, default in (
        ("--pids", "pids", int, usual.pids),
        ("--disk", "disk_mib", Size(), usual.disk_mib),
        ("--memory", "memory_mib", Size(), usual.memory_mib),
        ("--cpus", "cpus", Number(), usual.cpus),
    ):
        text = (
            f"At most this much; {default:g} {'MiB ' if name.endswith('mib') else ''}unless said."
        )
        command = click.option(option, name, type=kind, default=default, help=text)(command)
    return command


@click.command(context_settings=PAYLOAD)
@click.option("--template", default="base", show_default=True, help="What it starts from.")
@click.option(
    "--network",
    type=click.Choice([mode.value for mode in NetworkMode]),
    default=NetworkMode.NONE.value,
)
@click.option("--runtime", default="", help="crun, runc or runsc.")
@click.option("--copy", "copies", type=CopyPair(), multiple=True, help="Copy SRC to DST inside.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="To find it by.")
@click.option("--keep", is_flag=True, help="Do not remove the sandbox; its name is printed.")
@limit_options
@provider_option
@command_options
@output_options
@pass_invocation
def run(
    invocation: Invocation,
    /,
    provider: str,
    template: str,
    network: str,
    *,
    runtime: str,
    copies: tuple[Copy, ...],
    labels: tuple[str, ...],
    keep: bool,
    **options: Any,
) -> int:
    """Run a command in a disposable sandbox.

    The sandbox is made, used and removed; no server is needed. What stands after `--` belongs to
    the command, its --help included; a single argument with spaces in it goes to the sandbox's
    shell. Without --tty the streams are passed on as they are, bytes and all.

    \b
    Exit codes: the command's own, or
      124  the deadline passed
      137  killed; stderr says so when memory ran out
      130  interrupted (128 and the signal's number)
        1  the sandbox could not be made, used or removed
        2  the request makes no sense
    """
    asked = wish(options)
    spec = SandboxSpec(
        template=template,
        resources=Resources(**{name: options.pop(name) for name in _LIMITS}),
        labels={**disposable.LABELS, **pairs(labels, "--label")},
        env=asked.env,
        egress=EgressPolicy(NetworkMode(network)),
        runtime=runtime,
    )
    asked = replace(asked, env={})
    request = Request(provider, spec, asked, copies, keep, invocation.json)
    record = run_async(disposable.run(invocation.tools, request))
    if invocation.json:
        print_json(_as_json(request, record))
        return record.result.exit_code
    explain(record.result, request.wish, spec.resources.memory_mib)
    if keep:
        click.echo(f"kept {references.shown(record.ref)}", err=True)
    return record.result.exit_code


def _as_json(request: Request, record: Record) -> dict[str, object]:
    return {
        "sandbox": references.shown(record.ref),
        "command": list(request.wish.argv),
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
