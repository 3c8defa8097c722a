"""`paddock task`, looking after them: what is over is forgotten, what is stuck is looked into."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table, printable
from paddock.interfaces.cli.params import Seconds, pairs
from paddock.interfaces.cli.remote.session import connected, plain
from paddock.interfaces.client import AsyncTask
from paddock.interfaces.client.task_results import DiagnosisInfo, SweptInfo

OVER = ("completed", "failed", "cancelled")


@click.command()
@click.argument("task_ids", metavar="[TASK]...", nargs=-1)
@click.option("--state", "states", multiple=True, type=click.Choice(OVER), help="All in these.")
@click.option("--older-than", type=Seconds(), metavar="TIME", help="That ended so long ago: 7d.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="With this label.")
@click.option("--agent", default="", help="Of this agent.")
@click.option("--batch", default="", help="Of this batch.")
@click.option("--sandbox", "sandboxes", is_flag=True, help="With the sandboxes made for them.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-f", "--force", is_flag=True, help="Also what they made that is nowhere else.")
@output_options
@pass_invocation
def delete(invocation: Invocation, /, task_ids: Sequence[str], **wanted: Any) -> int:
    """Forget tasks that are over, with their messages and what their agents wrote.

    By name, or all that are all of what is said. One whose work is nowhere but in its sandbox
    stays, and is named; its events and the audit log stay in any case.
    """
    dry_run = wanted["dry_run"]
    chosen = [name for name in ("states", "older_than", "labels", "agent", "batch") if wanted[name]]
    if bool(task_ids) == bool(chosen):
        raise click.UsageError("give TASK ids, or say which ones with --state, --older-than, …")
    if task_ids and dry_run:
        raise click.UsageError("--dry-run is for those that are chosen with --state, --label, …")
    swept = run_async(_named(task_ids, wanted) if task_ids else _chosen(wanted))
    if invocation.json:
        print_json(plain(swept))
    else:
        _tell(swept, "would go" if dry_run else "deleted")
    return 1 if swept.kept and not dry_run else 0


async def _named(task_ids: Sequence[str], wanted: dict[str, Any]) -> SweptInfo:
    swept = SweptInfo()
    async with connected() as server:
        for each in task_ids:
            task = await AsyncTask.connect(each, server=server)
            gone = await task.delete(force=wanted["force"], sandbox=wanted["sandboxes"])
            swept = swept.plus(gone)
    return swept


async def _chosen(wanted: dict[str, Any]) -> SweptInfo:
    wanted["labels"] = pairs(wanted["labels"], "--label")
    if (age_s := wanted.pop("older_than")) is not None:
        wanted["before"] = datetime.now(UTC) - timedelta(seconds=age_s)
    async with connected() as server:
        return await AsyncTask.delete_all(server=server, **wanted)


def _tell(swept: SweptInfo, verb: str) -> None:
    for each in swept.tasks:
        click.echo(f"{verb:<10}{each}")
    for each in swept.sandboxes:
        click.echo(f"{verb:<10}{each}")
    for kept in swept.kept:
        click.echo(f"{'stays':<10}{kept.id}: {printable(kept.why)}")


@click.command()
@click.argument("task_id", metavar="TASK")
@output_options
@pass_invocation
def diagnose(invocation: Invocation, task_id: str) -> None:
    """Find out what a task is at: what runs, what it waits for, what it was refused.

    It changes and wakes nothing. What was found when a task was stuck is in its events:
    `paddock task logs`, kind task.diagnosis.
    """

    async def work() -> DiagnosisInfo:
        async with connected() as server:
            return await (await AsyncTask.connect(task_id, server=server)).diagnose()

    found = run_async(work())
    if invocation.json:
        print_json(plain(found))
        return
    rows = (
        (str(p.pid), str(p.parent), p.state, f"{p.cpu_s:.1f}", p.waits_in or "–", _short(p.command))
        for p in found.processes
    )
    print_table(("PID", "PARENT", "STATE", "CPU", "WAITS IN", "COMMAND"), rows)
    memory = [f"{name} {mib:.0f} MiB" for name, mib in found.memory_mib.items()]
    for title, lines in (
        ("memory", memory),
        ("disk", found.disks),
        ("connected", found.connections),
        ("refused", found.refused),
        ("asked", found.questions),
        ("last", found.lines),
        ("missing", found.missing),
    ):
        for line in lines:
            click.echo(f"{title:<10}{_short(line, 160)}")


def _short(text: str, most: int = 80) -> str:
    return printable(text)[:most]
