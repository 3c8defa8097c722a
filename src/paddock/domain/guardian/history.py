"""What the guardian remembers of a task: bounded, plain data that is kept with the task.

So that whoever takes a task over goes on where the other was: nothing is said twice, and a loop
that began before a crash is still one after it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.guardian.deeds import Deed, call_of, deed_of, outcome_of
from paddock.domain.guardian.policy import MOST_REPEATS, Act

LONGEST_CYCLE = 3
MOST_CALLS = MOST_REPEATS * LONGEST_CYCLE + 12
"""So many that the longest loop is seen whole, with some that have no result yet."""
MOST_SAID = 64
MOST_DUE = 32
MOST_LINES = 16
_LONGEST_LINE = 240
_SIMPLE = ("heard", "count", "waits_on", "reviewed_at", "reviewed")
_SHOWN = {
    AgentEventKind.MESSAGE: "agent",
    AgentEventKind.TOOL_CALL: "tool call",
    AgentEventKind.TOOL_RESULT: "tool result",
    AgentEventKind.FILE_EDITED: "edited",
    AgentEventKind.ERROR: "error",
    AgentEventKind.COMPLETED: "turn over",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, by digests."""

    tool: str
    digest: str
    call: str = ""
    outcome: str = ""
    """Empty until it has one."""


@dataclass(frozen=True, slots=True)
class Said:
    """Something that was brought up."""

    at: float
    times: int = 1
    unsaid: int = 0
    """How often it was found since, while it was too early to say it again."""
    is_allowed: bool = False
    """A person has let it pass: nobody is asked about it again in this task."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """Something that is done about what a rule has found."""

    number: int
    """Within the task: the same intervention has the same one, whoever carries it out."""
    rule: str
    act: Act
    why: str
    """What was found, for people and for the records."""
    text: str
    """What the agent is told, or a person asked."""
    at: float
    before: Mapping[str, Any] = field(default_factory=dict)
    """How things stood."""
    tries: int = 0
    """How often it could not be carried out."""
    failed: bool = False
    """A rule or a reviewer did not work: this tells of it."""
    subject: str = ""
    """What it is about: rule and occurrence, as in `History.said`."""


@dataclass(frozen=True, slots=True)
class History:
    """All that is remembered."""

    heard: int = 0
    """Events of the agent."""
    calls: tuple[Call, ...] = ()
    said: Mapping[str, Said] = field(default_factory=dict)
    count: int = 0
    """Interventions so far."""
    due: tuple[Intervention, ...] = ()
    """What is still to be carried out."""
    waits_on: str = ""
    """The subject that the task waits because of, until somebody lets it go on."""
    lines: tuple[str, ...] = ()
    """The end of what happened, in words; only kept for a reviewer."""
    reviewed_at: float = 0.0
    reviewed: int = 0
    """How many events there were then."""


def heard(history: History, event: AgentEvent, *, in_words: bool = False) -> History:
    """With one more event."""
    calls = history.calls
    deed = deed_of(event)
    if deed is not None and event.kind is AgentEventKind.TOOL_CALL:
        calls = (*calls, Call(deed.tool, deed.digest, deed.call))[-MOST_CALLS:]
    elif event.kind is AgentEventKind.TOOL_RESULT:
        calls = _answered(calls, call_of(event), outcome_of(event))
    lines = history.lines
    if in_words and event.kind in _SHOWN:
        lines = (*lines, _line(event, deed))[-MOST_LINES:]
    return replace(history, heard=history.heard + 1, calls=calls, lines=lines)


def _answered(calls: tuple[Call, ...], name: str, outcome: str) -> tuple[Call, ...]:
    """With the result of the call of that name; of the oldest without one, where none is named."""
    for number, call in enumerate(calls):
        if not call.outcome and (not name or not call.call or call.call == name):
            return (*calls[:number], replace(call, outcome=outcome), *calls[number + 1 :])
    return calls


def _line(event: AgentEvent, deed: Deed | None) -> str:
    data = event.data
    if deed is not None:
        text = " ".join((deed.tool, *deed.argv, *deed.paths))
    else:
        text = str(data.get("text") or data.get("message") or data.get("output") or "")
    return f"{_SHOWN[event.kind]}: {' '.join(text.split())[:_LONGEST_LINE]}"


def kept(history: History) -> dict[str, Any]:
    """As plain data, such as JSON holds."""
    return asdict(history)


def history_of(plain: Mapping[str, Any] | None) -> History:
    """What was kept. Of another version's what is not known is left out, never refused."""
    if not plain:
        return History()
    due = tuple(
        Intervention(**{**each, "act": Act(each["act"])})
        for each in _known(plain.get("due"), Intervention)
    )
    known = dict(plain.get("said") or {})
    said = {key: Said(**one) for key, one in zip(known, _known(known.values(), Said), strict=True)}
    calls = tuple(Call(**each) for each in _known(plain.get("calls"), Call))
    simple = {name: plain[name] for name in _SIMPLE if name in plain}
    lines = tuple(plain.get("lines") or ())
    return History(calls=calls, said=said, due=due, lines=lines, **simple)


def _known(many: Any, kind: type) -> list[dict[str, Any]]:
    names = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    return [{k: v for k, v in dict(each).items() if k in names} for each in many or ()]
