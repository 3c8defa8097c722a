"""`paddock history`: the course of a sandbox as a timeline, and the same at the pace it had."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import click

from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.params import Number
from paddock.interfaces.cli.remote.session import connected, sandbox_argument
from paddock.interfaces.cli.streams import Writer
from paddock.interfaces.client import Server
from paddock.interfaces.client.server import segment

_NO_OUTPUT = "note: what commands said is kept without its times, so only the steps are replayed"
_SHOWN = ("name", "program", "host", "port", "reason", "detail")


class Speed(Number):
    """`4` or `4x`."""

    name = "speed"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        speed = super().convert(str(value).removesuffix("x"), param, ctx)
        if speed <= 0:
            self.fail(f"{value!r} is no speed; say 4x, or 0.5x", param, ctx)
        return speed


@click.command()
@sandbox_argument
@click.option("--replay", is_flag=True, help="With the pauses that there were.")
@click.option("--speed", type=Speed(), default="1x", show_default=True, help="For --replay.")
@click.option("--quiet", is_flag=True, help="Leave out what only says that all goes on.")
@click.option("--command", default="", metavar="ID", help="Only this command.")
@output_options
@pass_invocation
def history(
    invocation: Invocation, /, name: str, *, replay: bool, speed: float, **wanted: Any
) -> None:
    """Tell the course of a sandbox, step by step.

    What is periodic or repeats is counted. As JSON it is one step a line.
    """

    async def work() -> None:
        writer, began = Writer(STDOUT), ""
        async with connected() as server:
            async for step in _steps(server, name, wanted):
                if replay and began:
                    await asyncio.sleep(step["after_s"] / speed)
                began = began or step["at"]
                line = json.dumps(step) if invocation.json else _line(step, began)
                await writer.write(f"{line}\n".encode())

    if replay and not invocation.json:
        click.echo(_NO_OUTPUT, err=True)
    run_async(work())


async def _steps(
    server: Server, name: str, wanted: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    after: int | None = 0
    while after is not None:
        query = {"after": after, "quiet": not wanted["quiet"], "command": wanted["command"]}
        page = await server.call("GET", f"/v1/sandboxes/{segment(name)}/history", query=query)
        for step in page["items"]:
            yield step
        after = page["newer"]


def _line(step: dict[str, Any], began: str) -> str:
    """When since the beginning, what, how often or how long, and what is to be said of it."""
    data = step["data"]
    since = _seconds(step["at"], began)
    times = f"×{step['count']}" if step["count"] > 1 else ""
    lasted = _seconds(step["until"], step["at"])
    if "exit_code" in data:
        times = f"{data.get('seconds', lasted):.1f} s"
    said = [str(data[name]) for name in _SHOWN if data.get(name) not in (None, "", "exited")]
    if "exit_code" in data:
        said.append(f"exit {data['exit_code']}")
    if isinstance(data.get("data"), dict) and data["data"]:
        said.append(json.dumps(data["data"], ensure_ascii=False)[:100])
    return f"{since:>+10.1f} s  {step['kind']:<22} {times:>8}  {'  '.join(said)}".rstrip()


def _seconds(later: str, earlier: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
