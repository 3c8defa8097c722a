"""`paddock models`: what sandboxes took of model APIs, and what that costs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table, printable
from paddock.interfaces.cli.remote.asking import ask
from paddock.interfaces.cli.remote.session import answer, sandbox_argument
from paddock.interfaces.client.server import segment

_PRICES = "/v1/models/prices"


@click.group(cls=Noun)
def models() -> None:
    """What sandboxes took of model APIs, and what that costs.

    A route is made with `paddock secrets bind NAME --as model --route anthropic`.
    """


@models.command()
@sandbox_argument
@output_options
@pass_invocation
def usage(invocation: Invocation, name: str) -> None:
    """Say which routes a sandbox has, and what it or its task took so far."""
    found = ask("GET", f"/v1/sandboxes/{segment(name)}/models")
    if invocation.json:
        print_json(found)
        return
    for each in found["routes"]:
        limit = each["spend_limit_usd"]
        more = f", at most {limit:.2f} USD" if limit is not None else ""
        click.echo(f"{each['variable']}={each['url']} ({each['base_url']}{more})")
    click.echo(f"{found['account']}: {found['spent_usd']:.4f} USD")
    rows = [
        (
            each["route"],
            each["model"] or "–",
            str(each["requests"]),
            str(each["input_tokens"]),
            str(each["cache_read_tokens"]),
            str(each["output_tokens"]),
            str(each["reasoning_tokens"]),
            _cost(each),
        )
        for each in found["used"]
    ]
    names = ("ROUTE", "MODEL", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "THOUGHT", "USD")
    print_table(names, rows)


def _cost(used: Mapping[str, Any]) -> str:
    doubts = [
        text
        for name, text in (("guessed", "tokens guessed"), ("assumed_price", "no price known"))
        if used[name]
    ]
    return f"{used['cost_usd']:.4f}" + (f" ({', '.join(doubts)})" if doubts else "")


@models.command()
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--reset", is_flag=True, help="Back to those that come with Paddock.")
@output_options
@pass_invocation
def prices(invocation: Invocation, file: Path | None, reset: bool) -> None:
    """Show prices, in dollars for a million tokens; for operators also set them.

    The file is JSON, in the form that `--json` shows.
    """
    if file is not None:
        found = ask("PUT", _PRICES, json=_table(file))
    else:
        found = ask("DELETE" if reset else "GET", _PRICES)
    if invocation.json:
        print_json(found)
        return
    names = ("input", "output", "cache_read", "cache_write")
    rows = [(model, *(f"{each[n]:g}" for n in names)) for model, each in found["prices"].items()]
    print_table(("MODEL", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE"), rows)
    if found["as_of"] or found["note"]:
        click.echo(f"as of {found['as_of'] or 'an unknown day'}; {printable(found['note'])}")
    if file is not None or reset:
        answer(invocation, found, f"{len(rows)} prices in force")


def _table(file: Path) -> object:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        refuse(
            f"{file} is no table of prices: {error}", "begin with `paddock models prices --json`"
        )
