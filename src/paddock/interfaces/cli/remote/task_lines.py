"""Events of a task as lines for people, one for each event that is worth one."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from paddock.interfaces.cli.output import printable
from paddock.interfaces.cli.remote.task_health import health_line
from paddock.interfaces.cli.remote.task_telling import MARKS, STATES, in_lines, shortened
from paddock.interfaces.client.results import Event

Data = Mapping[str, Any]
_QUIET = (
    "task.phase",
    "task.completing",
    "agent.usage",
    "agent.other",
    "agent.completed",
    "guardian.paused",  # `task.waiting` says it
)
_MOST_LINES = 10
"""Lines that are shown of a failed tool's output."""
_SUBJECTS = (
    "command",
    "cmd",
    "file_path",
    "filePath",
    "absolute_path",
    "notebook_path",
    "pattern",
    "path",
    "paths",
    "query",
    "url",
    "description",
    "question",
    "prompt",
)
"""Names under which agents give the one argument of a tool that says most."""
_ERRORS = ("failed", "error")


@dataclass(frozen=True, slots=True)
class Known:
    """Task data that lines need besides the events."""

    directory: str = ""
    """Paths within it are shown without it."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """Texts by the id of the message."""


def line_of(event: Event, known: Known | None = None) -> str:
    """Empty for what people need not see."""
    if event.kind in _QUIET:
        return ""
    if tell_with := _LINES_WITH.get(event.kind):
        return tell_with(event, known or Known())
    tell = _LINES.get(event.kind)
    return tell(event.data) if tell else _state(event.kind, event.data)


def _thinking(data: Data) -> str:
    return click.style(f"  {shortened(data.get('text', ''))}", dim=True)


def _message(data: Data) -> str:
    return in_lines(str(data.get("text", "")))


def _call(event: Event, known: Known) -> str:
    name = shortened(event.data.get("name", "tool"))
    subject = _subject(event.data.get("input"), known.directory)
    return f"→ {name} {shortened(subject)}".rstrip()


def _subject(value: object, directory: str) -> str:
    """The argument of a call that says most: `cart.py` of an edit, the command of a shell."""
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    chosen = next((value[name] for name in _SUBJECTS if value.get(name)), None)
    if chosen is None and len(value) == 1:
        (chosen,) = value.values()
    if chosen is not None:
        return _words(chosen, directory)
    return " ".join(f"{name}={_words(each, directory)}" for name, each in value.items())


def _words(value: object, directory: str) -> str:
    if isinstance(value, str):
        return _within(value, directory)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return shlex.join(_within(each, directory) for each in value)
    return json.dumps(value, ensure_ascii=False)


def _within(path: str, directory: str) -> str:
    return path.removeprefix(f"{directory.rstrip('/')}/") if directory else path


def _result(data: Data) -> str:
    """Only of one that failed."""
    if data.get("ok") is not False:
        return ""
    lines = in_lines(str(data.get("output", ""))).splitlines()
    shown = lines[:_MOST_LINES]
    if more := len(lines) - len(shown):
        shown.append(f"(and {more} more lines; `paddock task logs --json` has them)")
    return click.style(f"  ✗ {_indented(shown)}", fg="red")


def _edited(event: Event, known: Known) -> str:
    path = printable(_within(str(event.data.get("path", "")), known.directory))
    return f"± {path}{_counts(str(event.data.get('diff') or ''))}"


def _sent(event: Event, known: Known) -> str:
    """In full when it was sent; then how far it has come."""
    data = event.data
    state, text = data.get("state"), known.messages.get(str(data.get("message")), "")
    if state == "queued":
        return f"» {in_lines(text)}" if text else f"· message {data.get('message')} queued"
    said = f": {shortened(text)}" if text else f" {data.get('message')}"
    return click.style(f"· message {state}{said}", dim=True)


def _waiting(event: Event, _known: Known) -> str:
    """The reason, and how to resume the task. A guardian's question has its own event."""
    data = event.data
    why, rule = str(data.get("detail") or "for a person"), data.get("rule")
    approval = data.get("approval")
    line = click.style(f"· waiting: {in_lines(why)}", fg="yellow")
    if rule == "agent":
        return f"{line}\n{_to_answer(str(approval))}"
    if not approval:
        return f"{line}\n    resume: paddock task resume {event.subject}"
    return line


def _asked(data: Data) -> str:
    question = in_lines(str(data.get("text") or data.get("why", "")))
    line = click.style(f"? {question}  (rule {data.get('rule')})", fg="yellow")
    approval = dict(data.get("after") or {}).get("approval")
    return f"{line}\n{_to_decide(str(approval))}" if approval else line


def _approval(data: Data) -> str:
    """Something outside the agent that waits: a connection, a command."""
    what, why = in_lines(str(data.get("title", ""))), in_lines(str(data.get("why", "")))
    asked = {"egress": f"allow a connection to {what}?", "command": f"allow the command {what}?"}
    question = asked.get(str(data.get("kind")), what)
    if data.get("state") != "pending":
        return click.style(f"· {question} {data.get('state')}", dim=True)
    line = click.style(f"? {question}  ({why})", fg="yellow")
    return f"{line}\n{_to_decide(str(data.get('approval')))}"


def _to_decide(approval: str) -> str:
    return (
        f"    yes: paddock approvals allow {approval}\n    no:  paddock approvals deny {approval}"
    )


def _to_answer(approval: str) -> str:
    return f'    answer: paddock approvals answer {approval} --say "…"'


def _delayed(data: Data) -> str:
    """The agent itself waits, such as for its model."""
    again = data.get("retry_in_s")
    then = f"; next try in {again:.0f} s" if isinstance(again, int | float) else ""
    return click.style(f"· the agent waits: {in_lines(str(data.get('why', '')))}{then}", dim=True)


def _round(data: Data) -> str:
    """Only where there may be more of them."""
    if data.get("of", 1) == 1:
        return ""
    said = [f"{MARKS[state]} {name}" for state in MARKS for name in data.get(state, ())]
    if data.get("error"):
        said.append(f"it broke off: {in_lines(str(data['error']))}")
    return f"· round {data.get('round')} of {data.get('of')}  {'  '.join(said)}"


def _planned(_data: Data) -> str:
    return click.style("· planned", dim=True)


def _reviewed(data: Data) -> str:
    """Format a diagnosis with its findings."""
    color = "green" if data.get("approved") else "yellow"
    head = click.style(f"· review {data.get('review')}: {data.get('verdict')}", fg=color)
    found = [
        f"    {shortened(each.get('severity'))}: {in_lines(str(each.get('text')))}"
        for each in data.get("findings", ())
    ]
    return "\n".join((head, *found))


def _progress(data: Data) -> str:
    far = f"{data['percent']:g} % " if data.get("percent") is not None else ""
    return click.style(f"… {far}{shortened(data.get('text', ''))}", dim=True)


def _verdict(data: Data) -> str:
    word = "passes" if data.get("passed") else "fails"
    return f"the agent says: {shortened(data.get('name', ''))} {word}"


def _pulse(data: Data) -> str:
    if data.get("pulse") == "steady":
        return "· its sandbox tells of its agent again"
    silent_s = data.get("silent_s")
    line = f"· {data.get('pulse')}: its sandbox tells nothing of its agent for {silent_s} s"
    return click.style(line, fg="yellow")


def _restarted(data: Data) -> str:
    """From where, if its sandbox was lost with what was done in it."""
    line = f"· restarted: {in_lines(str(data.get('why') or data.get('reason', '')))}"
    if data.get("lost"):
        kept = data.get("snapshot")
        begins = f"continues from snapshot {kept}" if kept else "starts again"
        line = printable(f"· sandbox {data['lost']} was lost; the task {begins}, in another")
    return click.style(line, fg="yellow")


_LINES: Mapping[str, Callable[[Data], str]] = {
    "agent.thinking": _thinking,
    "agent.message": _message,
    "agent.tool_result": _result,
    "agent.waiting": _delayed,
    "guardian.asked": _asked,
    "task.approval": _approval,
    "task.pulse": _pulse,
    "task.restarted": _restarted,
    "task.round": _round,
    "task.health": health_line,
    "task.planned": _planned,
    "task.reviewed": _reviewed,
    "task.progress": _progress,
    "task.verdict": _verdict,
}
_LINES_WITH: Mapping[str, Callable[[Event, Known], str]] = {
    "agent.tool_call": _call,
    "agent.file_edited": _edited,
    "task.message": _sent,
    "task.waiting": _waiting,
}


def _state(kind: str, data: Data) -> str:
    """Format the end of a task. The reason of a failure is shown in full."""
    whose, _, what = kind.partition(".")
    names = ("rule", "reason", "detail", "why", "message", "text", "by", "error")
    said = [str(data[name]) for name in names if data.get(name)]
    if not said and data.get("state") not in (None, what):
        said = [str(data["state"])]
    subject = f"guardian {what}" if whose == "guardian" else what
    is_error = what in _ERRORS
    words = " – ".join(dict.fromkeys(said))
    words = _indented(in_lines(words).splitlines()) if is_error else shortened(words)
    color = "red" if is_error else STATES.get(what)
    line = f"· {subject}{': ' if words else ''}{words}"
    return click.style(line, fg=color, dim=color is None)


def _indented(lines: Sequence[str]) -> str:
    return "\n    ".join(lines)


def _counts(diff: str) -> str:
    lines = [line for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"  +{added} -{removed}" if diff else ""
