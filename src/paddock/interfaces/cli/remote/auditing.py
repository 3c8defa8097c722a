"""`paddock audit`: who did what, and whether the log of it is as it was written."""

import json
import re
from datetime import datetime
from typing import IO, Any

import click

from paddock.domain.audit import START, AuditEntry, Break, Head, Walk, old_link
from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table, printable
from paddock.interfaces.cli.remote.asking import ask, listed
from paddock.interfaces.cli.remote.session import connected
from paddock.interfaces.cli.streams import Writer
from paddock.interfaces.client.server import Call

_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")
_WORDS = ("team_id", "actor", "action", "subject", "seal", "salt")
_LONGEST_S = 3600.0
_ROUNDED_S = 0.001
_CUT = (
    "Had its end been cut off, that would not show here. Keep the head elsewhere, and give it\n"
    "with --expect the next time."
)


@click.group(cls=Noun, invoke_without_command=True)
@click.option("--export", is_flag=True, help="All of it, one entry a line, with its chain.")
@output_options
@click.pass_context
def audit(context: click.Context, export: bool) -> None:
    """Say who did what in the team, oldest first. For those whose role may read it."""
    if context.invoked_subcommand is not None:
        return
    if export or context.ensure_object(Invocation).json:
        run_async(_export())
        return
    print_table(
        ("WHEN", "WHO", "WHAT", "TO"),
        (
            (entry["at"][:19].replace("T", " "), _who(entry), entry["action"], entry["subject"])
            for entry in listed("/v1/audit")
        ),
    )


def _who(entry: dict[str, Any]) -> str:
    person = entry["person"]
    return f"{person['name']} ({person['id']})" if person and person["name"] else entry["actor"]


async def _export() -> None:
    writer = Writer(STDOUT)
    async with connected() as server, server.open(Call("GET", "/v1/audit/export")) as response:
        async for piece in response.content.iter_any():
            await writer.write(piece)


class HeadParam(click.ParamType[Head]):
    """`SEQ:HASH`, as `paddock audit verify` prints it."""

    name = "SEQ:HASH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Head:
        if isinstance(value, Head):
            return value
        if not (match := _HEAD.fullmatch(value.strip())):
            self.fail(f"{value!r} is no head; write it as it was printed, 12:3fa…", param, ctx)
        return Head(int(match[1]), match[2])


@audit.command()
@click.argument("file", type=click.File("r", encoding="utf-8"), required=False)
@click.option("--all", "everything", is_flag=True, help="All teams' entries; for operators.")
@click.option("--expect", type=HeadParam(), default=START, help="An entry that has to be there.")
@output_options
@pass_invocation
def verify(invocation: Invocation, file: IO[str] | None, *, everything: bool, expect: Head) -> int:
    """Say whether the audit log is as it was written.

    With FILE, an export of a team (`-` for standard input), without asking any server. The exit
    code is 1 when an entry was changed, removed or put in, and the first one is named.
    """
    if file is not None and everything:
        refuse("an export is of one team, and --all of all", "leave out one of them")
    verdict = _verdict(_walked(file, expect)) if file else _asked(everything, expect)
    if invocation.json:
        print_json(verdict)
    else:
        _tell(verdict, expect)
    return 0 if verdict["holds"] else 1


def _asked(everything: bool, expect: Head) -> dict[str, Any]:
    query = {
        "everything": "true" if everything else "false",
        "expect": "" if expect == START else str(expect),
    }
    found: dict[str, Any] = ask("GET", "/v1/audit/verify", query=query, answers_within_s=_LONGEST_S)
    return found


def _walked(file: IO[str], expect: Head) -> Walk:
    walk = Walk(team=True, expect=expect)
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            entry, agrees = _entry(told), _agrees(told)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            walk.note(Break(walk.head.seq + 1, f"line {number} is no entry: {error!r:.200}"))
            continue
        if number == 1 and entry.team_hash == old_link(_as_it_was(entry)):
            refuse(
                "this export is of an older Paddock: its chain is that of all teams, and has gaps",
                "export it again; the server has given each team a chain of its own",
            )
        walk.go([entry])
        if not agrees:
            walk.note(Break(entry.team_seq, "its time or person is told otherwise than it was"))
    walk.end()
    return walk


def _entry(told: dict[str, Any]) -> AuditEntry:
    words: dict[str, Any] = {name: _text(told[name]) for name in _WORDS}
    return AuditEntry(
        **words,
        at=float(told["at_seconds"]),
        detail=dict(told["detail"]),
        team_seq=int(told["seq"]),
        team_previous=_text(told["previous"]),
        team_hash=_text(told["hash"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _as_it_was(entry: AuditEntry) -> AuditEntry:
    """Its place read as one in the chain of all teams."""
    content = {name: getattr(entry, name) for name in (*_WORDS, "at", "detail")}
    return AuditEntry(**content, seq=entry.team_seq, previous=entry.team_previous)


def _agrees(told: dict[str, Any]) -> bool:
    """An export says some of it twice, for its readers; the hash is of one of both."""
    person = told["person"]
    shown = datetime.fromisoformat(told["at"]).timestamp()
    is_same = bool(not person or person["id"] == told["actor"].partition("/")[0])
    return is_same and bool(abs(shown - told["at_seconds"]) < _ROUNDED_S)


def _verdict(walk: Walk) -> dict[str, Any]:
    first = walk.first
    return {
        "holds": first is None,
        "entries": walk.entries,
        "head": {"seq": walk.head.seq, "hash": walk.head.hash},
        "breaks": walk.breaks,
        "first_break": {"seq": first.seq, "problem": first.problem} if first else None,
        "redacted": walk.redacted,
        "accounted": walk.accounted,
    }


def _tell(verdict: dict[str, Any], expect: Head) -> None:
    if broken := verdict["first_break"]:
        more = f" ({verdict['breaks']} places in all)" if verdict["breaks"] > 1 else ""
        problem = printable(broken["problem"])
        click.echo(f"The log does NOT hold. Entry {broken['seq']}: {problem}{more}")
    else:
        click.echo(f"The log holds: {verdict['entries']} entries, each as it was written.")
    click.echo(f"Head: {verdict['head']['seq']}:{verdict['head']['hash']}")
    if taken := verdict["redacted"]:
        known = verdict["accounted"]
        word = "only " if known < taken else ""
        click.echo(f"Details of {taken} were taken out; purges account for {word}{known} of them.")
    if expect == START:
        click.echo(_CUT)
