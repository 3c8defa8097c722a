"""`paddock egress`: what sandboxes may reach, and what they reached."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.remote.asking import ask
from paddock.interfaces.cli.remote.session import (
    SandboxName,
    answer,
    connected,
    plain,
    sandbox_argument,
)
from paddock.interfaces.cli.streams import Writer
from paddock.interfaces.client import AsyncSandbox, Server
from paddock.interfaces.client.events import follow_events, list_events
from paddock.interfaces.client.results import Event
from paddock.interfaces.client.server import segment

F = TypeVar("F", bound=Callable[..., Any])
_DENIED = 1
_KINDS = ("egress.allowed", "egress.denied")


@click.group(cls=Noun)
def egress() -> None:
    """What sandboxes may reach, and what they reached.

    A rule is `host`, `*.domain:443`, `10.1.0.0/16:5432` or `GET http://host/path/**`; `!` before it
    denies. Rules of the sandbox come first, then those of its app, its template and its preset; but
    what one of these denies, nobody nearer can allow.
    """


@egress.command()
@sandbox_argument
@output_options
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Say what is in force for a sandbox, and where each rule comes from."""
    found = ask("GET", f"/v1/sandboxes/{segment(name)}/egress")
    if invocation.json:
        print_json(found)
        return
    click.echo(f"mode {found['mode']} (by the {found['mode_from']})")
    if found["on_block"] == "ask":
        click.echo(f"what no rule is about is asked for (by the {found['on_block_from']})")
    if found["mode"] == "allowlist":
        print_table(("RULE", "FROM"), [(each["rule"], each["source"]) for each in found["rules"]])
    _warn(found)


@egress.command()
@sandbox_argument
@click.argument("rules", nargs=-1, required=True, metavar="RULE...")
@output_options
@pass_invocation
def allow(invocation: Invocation, name: str, rules: Sequence[str]) -> None:
    """Put rules before those that a sandbox has; in force at once."""
    body = {"rules": list(rules)}
    found = ask("POST", f"/v1/sandboxes/{segment(name)}/egress/allow", json=body)
    if not invocation.json:
        _warn(found)
    own = ", ".join(found["own"]["rules"])
    answer(invocation, found, f"sandbox {name}: {found['mode']}, of its own: {own}")


@egress.command()
@sandbox_argument
@click.argument("url", metavar="HOST[:PORT]|URL")
@click.option("--method", default="", metavar="METHOD", help="Of an http:// request; else GET.")
@output_options
@pass_invocation
def test(invocation: Invocation, name: str, url: str, method: str) -> int:
    """Say whether a sandbox may connect somewhere, without doing so. Exits 1 if it may not."""
    body = {"url": url, "method": method.upper()}
    found = ask("POST", f"/v1/sandboxes/{segment(name)}/egress/test", json=body)
    verdict = "allowed" if found["allowed"] else "asked" if found["asked"] else "denied"
    by = (
        f"by the rule {found['rule']} of the {found['source']}" if found["rule"] else "no rule fits"
    )
    place = f"{found['host']}:{found['port']}"
    answer(invocation, found, f"{verdict}  {place}  {by}")
    return 0 if found["allowed"] else _DENIED


@egress.command()
@click.argument("name", metavar="[SANDBOX]", required=False, default="", type=SandboxName())
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens.")
@click.option("--denied", is_flag=True, help="Only what was refused.")
@output_options
@pass_invocation
def log(invocation: Invocation, name: str, follow: bool, denied: bool) -> None:
    """Say what sandboxes reached and what they were refused, oldest first.

    Connections to one place are summed up by the second. As JSON it is one event a line.
    """
    kinds = _KINDS[1:] if denied else _KINDS

    async def work() -> None:
        writer = Writer(STDOUT)
        async with connected() as server:
            subject = (await AsyncSandbox.connect(name, server=server)).id if name else ""
            async for event in _flows(server, subject, kinds, follow=follow):
                line = json.dumps(plain(event)) if invocation.json else _line(event)
                await writer.write(f"{line}\n".encode())

    run_async(work())


async def _flows(
    server: Server, subject: str, kinds: Sequence[str], *, follow: bool
) -> AsyncIterator[Event]:
    last = 0
    async for event in list_events(server, subject, kinds, app=""):
        last = event.seq
        yield event
    if follow:
        async for event in follow_events(server, subject, kinds, app="", after=last):
            yield event


def _line(event: Event) -> str:
    data = event.data
    place = f"{data['host']}:{data['port']}" if data.get("port") else str(data["host"])
    verdict, moved = event.kind.removeprefix("egress."), ""
    if event.kind == _KINDS[0] and data.get("why"):
        verdict = "failed"  # the rules allow it, but it could not be reached
    elif event.kind == _KINDS[0]:
        moved = f"{data['bytes_up']} B up, {data['bytes_down']} B down, "
    times = f"×{data['connections']}" if data["connections"] > 1 else ""
    by = data.get("why") or f"by {data['rule']} of the {data['of']}"
    return (
        f"{event.at:%Y-%m-%d %H:%M:%S}  {data['name']:<20} {verdict:<8} {place:<36} {times:>5}  "
        f"{moved}{by}"
    )


def _holder_options(command: F) -> F:
    for decorate in (
        click.option("--app", default="", metavar="NAME", help="Of an app."),
        click.option("--template", default="", metavar="NAME", help="Of a template."),
        click.option("--preset", "of_preset", default="", metavar="NAME", help="Of a preset."),
        click.option("--sandbox", default="", type=SandboxName(), help="Of one sandbox."),
    ):
        command = decorate(command)
    return command


def _place(**said: str) -> tuple[str, str]:
    """Where it is, and whose it is in words."""
    given = [(kind, name) for kind, name in said.items() if name]
    if len(given) != 1:
        refuse(
            "rules belong to one holder",
            "give one of --sandbox, --app, --template and --preset",
        )
    kind, name = given[0]
    return {
        "sandbox": f"/v1/sandboxes/{segment(name)}/egress",
        "app": f"/v1/apps/{segment(name)}/egress",
        "template": f"/v1/templates/{segment(name)}/egress",
        "preset": f"/v1/egress/presets/{segment(name)}",
    }[kind], f"{kind} {name}"


@egress.command("set")
@click.argument("rules", nargs=-1, metavar="[RULE]...")
@click.option("--mode", type=click.Choice(["none", "allowlist", "open"]), help="How much at all.")
@click.option("--begin-with", metavar="PRESET", help="The preset to begin with; '' for none.")
@click.option(
    "--on-block",
    type=click.Choice(["deny", "ask"]),
    help="What no rule is about is refused, or people are asked: `paddock approvals`.",
)
@click.option("--file", type=click.Path(path_type=Path, allow_dash=True), help="Rules, one a line.")
@_holder_options
@output_options
@pass_invocation
def set_rules(
    invocation: Invocation,
    /,
    rules: Sequence[str],
    *,
    mode: str | None,
    begin_with: str | None,
    on_block: str | None,
    file: Path | None,
    of_preset: str,
    **holder: str,
) -> None:
    """Set what a sandbox, an app, a template or a preset has of its own, instead of what it had.

    In force at once, also for connections that there are.
    """
    path, whose = _place(**holder, preset=of_preset)
    wanted = [*rules, *(_read(file) if file else ())]
    wish = {"mode": mode, "preset": begin_with, "rules": wanted, "on_block": on_block}
    found = ask("PUT", path, json=wish)
    if not invocation.json:
        _warn(found)
    count = len(wanted)
    answer(invocation, found, f"{whose}: {count} rule{'' if count == 1 else 's'} of its own")


@egress.command()
@click.argument("rules", nargs=-1, metavar="[RULE]...")
@_holder_options
@output_options
@pass_invocation
def rm(invocation: Invocation, /, rules: Sequence[str], *, of_preset: str, **holder: str) -> None:
    """Take away rules of a sandbox, an app, a template or a preset; without any, all it has."""
    path, whose = _place(**holder, preset=of_preset)
    if rules:
        found = _without(path, rules, whose)
        answer(invocation, found, f"{whose}: without {', '.join(rules)}")
        return
    if holder["sandbox"]:
        refuse(
            "a sandbox always has a policy",
            f"change it: `paddock egress set --sandbox {holder['sandbox']} RULE`",
        )
    ask("DELETE", path)
    answer(invocation, {"egress": None}, f"{whose}: nothing of its own")


def _without(path: str, rules: Sequence[str], whose: str) -> Any:
    found = ask("GET", path)
    own = found.get("own", found)
    # What was allowed for a task is not among a sandbox's own: it ends with every change of those.
    granted = [each["rule"] for each in found["rules"] if _is_granted(each)]
    if missing := [rule for rule in rules if rule not in own["rules"] + granted]:
        refuse(
            f"{whose} has no rule {', '.join(missing)} of its own",
            "`paddock egress show` says where each rule comes from",
        )
    left = [rule for rule in own["rules"] if rule not in rules]
    wish = {name: own[name] for name in ("mode", "preset", "on_block")}
    return ask("PUT", path, json={**wish, "rules": left})


def _is_granted(rule: Any) -> bool:
    return isinstance(rule, dict) and str(rule["source"]).startswith("task ")


@egress.command()
@click.argument("name", metavar="[PRESET]", required=False, default="")
@output_options
@pass_invocation
def presets(invocation: Invocation, name: str) -> None:
    """Say which presets there are, or what is in one."""
    if name:
        found = ask("GET", f"/v1/egress/presets/{segment(name)}")
        answer(invocation, found, "\n".join(found["rules"]))
        return
    found = ask("GET", "/v1/egress/presets")
    answer(invocation, found, "\n".join(found["items"]))


def _read(file: Path) -> list[str]:
    try:
        with click.open_file(str(file), encoding="utf-8") as opened:
            lines = [line.partition("#")[0].strip() for line in opened]
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}", "name a readable file")
    return [line for line in lines if line]


def _warn(found: dict[str, Any]) -> None:
    for warning in found.get("warnings", ()):
        click.echo(f"warning: {warning}", err=True)
