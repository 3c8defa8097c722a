"""What agents do, in one vocabulary, whoever made them.

| kind | data |
|---|---|
| started | version, model, session; once for a run, however many turns it has |
| thinking, message | text; parent, where a helper of the agent says it: the call that started it |
| tool_call | id, name, input; parent |
| tool_result | id, ok, output; parent |
| file_edited | path, kind (add, update or delete), diff (unified; empty if the agent says none) |
| usage | input_tokens, cached_tokens of them, output_tokens, reasoning_tokens? of them, cost_usd? |
| waiting | why, retry_in_s? |
| completed | text, ok; ok is false for a turn that was broken off because somebody wanted that |
| error | message, final, status? (of the model's HTTP answer), exit_code? (of an agent that ended \
before it was done); a failed turn is one with final |
| other | type, as the agent calls it |

Keys with ? are there only if they are known, and parent only if there is one. What is longer than
`LONGEST_DATA` is cut, and `cut: true` says so; messages and thoughts are told in pieces
instead. Usage is what was used since the last one, so that the sum of all is the sum of the run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LONGEST_DATA = 16 << 10
"""In characters, of one text of an event that is not what the agent itself says."""
LONGEST_SAID = 64 << 10
"""In characters, of what an agent says itself: what is longer becomes several events. No text of
an event is longer, and neither are last words."""


class AgentEventKind(StrEnum):
    """All that an agent's stream is turned into. Raw lines are kept beside it."""

    STARTED = "agent.started"
    """With the agent's version, model and session."""
    THINKING = "agent.thinking"
    MESSAGE = "agent.message"
    TOOL_CALL = "agent.tool_call"
    TOOL_RESULT = "agent.tool_result"
    FILE_EDITED = "agent.file_edited"
    """With the difference, where the agent says it."""
    USAGE = "agent.usage"
    WAITING = "agent.waiting"
    """It asks for something, or it waits for the model."""
    COMPLETED = "agent.completed"
    """A turn is over, with the agent's last words."""
    ERROR = "agent.error"
    OTHER = "agent.other"
    """What no adapter knows yet."""


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One thing that an agent did, and where in its output that stands."""

    kind: AgentEventKind
    data: Mapping[str, Any] = field(default_factory=dict)


_SAYINGS = frozenset({AgentEventKind.MESSAGE, AgentEventKind.THINKING})


def in_pieces(event: AgentEvent) -> Iterator[AgentEvent]:
    """The same, with no text that is too long to be kept: whatever an adapter has made of a line of
    megabytes."""
    long = [k for k, v in event.data.items() if isinstance(v, str) and len(v) > LONGEST_SAID]
    if not long:
        yield event
        return
    data = dict(event.data)
    if event.kind in _SAYINGS and "text" in long:
        said = data["text"]
        for start in range(0, len(said), LONGEST_SAID):
            piece = {**data, "text": said[start : start + LONGEST_SAID]}
            yield from in_pieces(AgentEvent(event.kind, piece))
        return
    short = {name: data[name][:LONGEST_SAID] for name in long}
    yield AgentEvent(event.kind, {**data, **short, "cut": True})


@dataclass(frozen=True, slots=True)
class Ending:
    """How an agent's run ended, judged by what it did, never by its exit code alone."""

    is_good: bool
    why: str = ""
    message: str = ""


def judged(events: "Verdict", exit_code: int | None) -> Ending:
    """A run that did nothing is a failure, whatever it says of itself."""
    if events.error:
        return Ending(is_good=False, why=events.error, message=events.last_words)
    if not events.did_something:
        return Ending(is_good=False, why=f"no output: it ended with {exit_code} and did nothing")
    if not events.has_completed:
        why = f"it ended with {exit_code} before it said that it was done"
        return Ending(is_good=False, why=why, message=events.last_words)
    return Ending(is_good=True, message=events.last_words)


@dataclass(slots=True)
class Verdict:
    """What has to be remembered of a run's events to judge it."""

    error: str = ""
    last_words: str = ""
    did_something: bool = False
    has_completed: bool = False

    def hear(self, event: AgentEvent) -> None:
        match event.kind:
            case AgentEventKind.MESSAGE | AgentEventKind.TOOL_CALL | AgentEventKind.FILE_EDITED:
                self.did_something = True
                self.has_completed = False
                self._say(event.data.get("text"), event.data.get("cut"))
            case AgentEventKind.COMPLETED:
                self.has_completed = True
                self.error = ""
                if text := event.data.get("text"):
                    self.did_something = True
                    self._say(text, event.data.get("cut"))
            case AgentEventKind.ERROR if event.data.get("final"):
                if event.data.get("exit_code") == 0 and not self.did_something:
                    return  # its whole fault is that it did nothing: see `judged`
                self.error = str(event.data.get("message", "the agent failed"))[:LONGEST_DATA]

    def _say(self, text: object, is_cut: object) -> None:
        if text is None:
            return
        words = str(text)
        if is_cut or len(words) > LONGEST_SAID:
            words = f"{words[:LONGEST_SAID]}\n[cut: it was longer]"
        self.last_words = words
