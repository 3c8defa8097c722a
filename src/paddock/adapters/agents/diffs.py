"""Differences of files, in the unified form that everybody reads."""

import difflib
import re
from collections.abc import Iterable

from paddock.adapters.agents.lines import Json, cut
from paddock.domain.agent_event import AgentEvent, AgentEventKind

NOWHERE = "/dev/null"
_LONGEST = 256 << 10
"""Of a text, in characters."""
_MOST_LINES = 600
"""On either side, where a shortest difference is looked for: that takes time that grows with the
square of the lines. What is more is told as one change, which is true as well, and quick."""
_CONTEXT = 3
_NUMBER = re.compile(r"([-+])(\d+)")
_UNFINISHED = "\\ No newline at end of file\n"


def edited(path: str, kind: str, diff: str) -> AgentEvent:
    data: Json = {"path": path, "kind": kind, **cut("diff", diff)}
    return AgentEvent(AgentEventKind.FILE_EDITED, data)


def between(path: str, old: str | None, new: str | None) -> str:
    """From one text to another; None where there is no file. Empty if it would take too long."""
    if old and new and max(len(old), len(new)) > _LONGEST:
        return ""
    hunks = "".join(_hunks(_lines(old or ""), _lines(new or "")))
    return headed(path, hunks, is_new=old is None, is_gone=new is None) if hunks else ""


def headed(path: str, hunks: str, *, is_new: bool = False, is_gone: bool = False) -> str:
    old = NOWHERE if is_new else f"a/{path.lstrip('/')}"
    new = NOWHERE if is_gone else f"b/{path.lstrip('/')}"
    return f"--- {old}\n+++ {new}\n{hunks}"


def hunk(start: tuple[int, int], size: tuple[int, int], lines: Iterable[str]) -> str:
    """A piece of a difference, its lines with their marks in front."""
    head = f"@@ -{start[0]},{size[0]} +{start[1]},{size[1]} @@\n"
    return head + "".join(f"{line}\n" for line in lines)


def _hunks(before: list[str], after: list[str]) -> Iterable[str]:
    if before == after:
        return []
    start = _common(before, after)
    tail = _common(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - tail], after[start : len(after) - tail]
    lead = before[max(start - _CONTEXT, 0) : start]
    rest = before[len(before) - tail :][:_CONTEXT]
    start -= len(lead)
    if max(len(old), len(new)) <= _MOST_LINES:
        found = difflib.unified_diff([*lead, *old, *rest], [*lead, *new, *rest], n=_CONTEXT)
        return (_moved(line, start) for line in [*found][2:])
    around = len(lead) + len(rest)
    head = f"@@ -{_span(start, around + len(old))} +{_span(start, around + len(new))} @@\n"
    marked = (
        f"{mark}{line}"
        for mark, side in zip(" -+ ", (lead, old, new, rest), strict=True)
        for line in side
    )
    return [head, *marked]


def _common(one: list[str], other: list[str]) -> int:
    """How many lines are the same at the beginning of both."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _moved(line: str, by: int) -> str:
    if not by or not line.startswith("@@"):
        return line
    return _NUMBER.sub(lambda found: f"{found[1]}{int(found[2]) + by}", line)


def _span(start: int, size: int) -> str:
    return f"{start + 1 if size else start},{size}"


def _lines(text: str) -> list[str]:
    """Only a line feed ends a line, as for every program that will read the difference."""
    *lines, rest = text.split("\n")
    found = [f"{line}\n" for line in lines]
    return [*found, f"{rest}\n{_UNFINISHED}"] if rest else found
