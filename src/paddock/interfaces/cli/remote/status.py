"""`paddock status` and `paddock health`: the state of everything, and of one sandbox."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table, printable
from paddock.interfaces.cli.params import Seconds
from paddock.interfaces.cli.remote.session import SandboxName, connected
from paddock.interfaces.client.server import segment


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Again and again, until interrupted.")
@click.option("--every", type=Seconds(), default=2.0, show_default=True, help="With --watch.")
@output_options
@pass_invocation
def status(invocation: Invocation, watch: bool, *, every: float) -> None:
    """Say how everything is: servers, tasks, strays, quarantine, cost, audit log, providers."""

    async def work() -> None:
        async with connected() as server:
            while True:
                found = await server.call("GET", "/v1/system/status")
                if watch and not invocation.json:
                    click.clear()
                print_json(found) if invocation.json else _tell(found)
                if not watch:
                    return
                await asyncio.sleep(every)

    run_async(work())


def _tell(found: dict[str, Any]) -> None:
    for each in found["servers"]:
        life = "alive" if each["alive"] else "SILENT"
        place = f"{each['host']}/{each['pid']}"
        click.echo(f"server    {place}  {life}  {each['tasks']} of {each['most']} tasks")
    states = [f"{n} {state}" for state, n in found["tasks_by_state"].items() if n]
    click.echo(f"tasks     {', '.join(states) or 'none'}")
    if phases := [f"{n} {phase}" for phase, n in found["tasks_by_phase"].items()]:
        click.echo(f"phases    {', '.join(phases)}")
    if oldest := found["oldest_waiting"]:
        click.echo(f"waiting   {oldest['id']} since {oldest['since']}")
    for each in found["strays"]:
        click.echo(f"stray     {each['id']}  {each['kind']}  {printable(each['detail'])[:80]}")
    for each in found["quarantined"]:
        click.echo(f"aside     {each['name']}  {printable(each['why'])[:80]}")
    for each in found["spend"]:
        sums = f"${each['today_usd']:.2f} today, ${each['month_usd']:.2f} this month"
        click.echo(f"models    {each['team']}  {sums}")
    if chain := found["audit"]:
        click.echo(f"audit     {_audit(chain)}")
    for each in found["providers"]:
        said = (each["last_error"] or "").partition("\n")[0]  # what to do about it says `doctor`
        state = "usable" if each["usable"] else f"NOT USABLE: {printable(said)}"
        click.echo(f"provider  {each['name']}  {state}")
    if away := found.get("diversion"):
        why = f"{away['provider']} is away since {away['since']}: {printable(away['why'])[:200]}"
        click.echo(f"fallback  sandboxes are made on {away['fallback']}: {why}")


def _audit(chain: dict[str, Any]) -> str:
    if broken := chain["first_break"]:
        return f"DOES NOT HOLD: entry {broken['seq']}: {printable(broken['problem'])[:200]}"
    looked = "" if chain["whole_at"] else ", as far as it was looked at"
    return f"holds, {chain['head']['seq']} entries{looked}"


@click.command()
@click.argument("names", type=SandboxName(), nargs=-1, required=True)
@output_options
@pass_invocation
def health(invocation: Invocation, names: Sequence[str]) -> int:
    """Say how sandboxes are and how quickly they answer; those that sleep are not woken.

    The exit code is 1 when one of them is not healthy.
    """

    async def work() -> list[Any]:
        async with connected() as server:
            return [
                await server.call("GET", f"/v1/sandboxes/{segment(name)}/health") for name in names
            ]

    found = run_async(work())
    if invocation.json:
        print_json({"sandboxes": found})
    else:
        rows = ((each["name"], each["state"], _latency(each), each["detail"]) for each in found)
        print_table(("NAME", "STATE", "ANSWERS IN", ""), rows)
    return 0 if all(each["healthy"] for each in found) else 1


def _latency(each: dict[str, Any]) -> str:
    return f"{each['latency_s'] * 1000:.0f} ms" if each["latency_s"] is not None else "–"
