"""`paddock team quota`: how much a team may have, and how much of it is used."""

from typing import Any

import click

from paddock.domain.quota import QuotaName
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.remote.asking import ask
from paddock.interfaces.client.server import segment

_DEFAULT, _UNLIMITED = "default", "unlimited"


class Limit(click.ParamType[float | str]):
    """A number, `unlimited` or `default`."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        if value in (_DEFAULT, _UNLIMITED):
            return str(value)
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if not 0 <= amount < float("inf"):
            self.fail(f"{value!r} is not a number, `unlimited` or `default`", param, ctx)
        return int(amount) if amount.is_integer() else amount


@click.group(cls=Noun)
def quota() -> None:
    """How much a team may have, and how much of it is used."""


@quota.command()
@click.argument("team", default="")
@output_options
@pass_invocation
def show(invocation: Invocation, team: str) -> None:
    """Show the limits and usage of your team, or of TEAM (operators only)."""
    name = team or ask("GET", "/v1/me")["team"]["id"]
    _print(invocation, ask("GET", _path(name)))


def _limits(command: Any) -> Any:
    for name in reversed(QuotaName):
        option = click.option(
            f"--{name.replace('_', '-')}", name.value, type=Limit(), help=_HELP[name]
        )
        command = option(command)
    return command


_HELP = {
    QuotaName.SANDBOXES: "Number of sandboxes that are not deleted.",
    QuotaName.CPUS: "Total CPUs of all sandboxes.",
    QuotaName.MEMORY_MIB: "Total memory of all sandboxes.",
    QuotaName.DISK_MIB: "Disks of sandboxes, volumes, snapshots, files and templates of builds.",
    QuotaName.TASKS: "Number of unfinished tasks.",
    QuotaName.EVENTS_MIB: "Stored events and agent output.",
    QuotaName.SANDBOX_EVENTS_MIB: "Stored events and agent output of one sandbox or task.",
}


@quota.command("set")
@click.argument("team")
@_limits
@output_options
@pass_invocation
def set_limits(invocation: Invocation, /, team: str, **limits: float | str | None) -> None:
    """Set limits of TEAM (operators only).

    LIMIT is a number, `unlimited`, or `default` for the limit in the settings.
    """
    said = {k: None if v == _DEFAULT else v for k, v in limits.items() if v is not None}
    if not said:
        raise click.UsageError("specify at least one limit, such as --sandboxes 20")
    _print(invocation, ask("PATCH", _path(team), json=said))


def _path(team: str) -> str:
    return f"/v1/teams/{segment(team)}/quota"


def _print(invocation: Invocation, found: Any) -> None:
    if invocation.json:
        print_json(found)
        return
    rows = (
        (
            each["name"],
            "–" if each["used"] is None else f"{each['used']:.10g}",
            _UNLIMITED if each["limit"] is None else f"{each['limit']:.10g}",
            "team" if each["own"] else "settings",
        )
        for each in found["limits"]
    )
    print_table(("QUOTA", "USED", "LIMIT", "FROM"), rows)
