"""What an agent wrote, read: nothing here waits or is written."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paddock.domain import conversation as talks
from paddock.domain.agent import Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind, in_pieces
from paddock.domain.broker.masking import Mask
from paddock.domain.budget import Spent
from paddock.domain.conversation import LONGEST_LINE, Conversation, Lines
from paddock.domain.reason import Reason
from paddock.guest_client.runs import Chunk, Gap, Told
from paddock.ports.agent import Agent

_log = logging.getLogger(__name__)
_MOST = 2**40
MOST_EVENTS = 20_000
MOST_RAW = 32 << 20
"""Bytes of an agent's output that are kept."""
_LINES_AT_ONCE = 1000
"""Lines read before yielding to the event loop; each takes about 0.1 ms."""
_MOST_BEYOND = 20_000
"""Of those that are told even then."""
_ALWAYS_TOLD = frozenset(
    {
        AgentEventKind.STARTED,
        AgentEventKind.FILE_EDITED,
        AgentEventKind.USAGE,
        AgentEventKind.COMPLETED,
        AgentEventKind.ERROR,
    }
)
Events = tuple[AgentEvent, ...]


def read_lines(data: bytes, mask: Mask, *, is_skipping: bool, is_last: bool) -> tuple[Lines, bytes]:
    """The lines that are there, and all that is kept of them, without values that are not to be.

    What is masked keeps its length: who wrote it counts in bytes. A value lies within one line,
    which is read when all of it has come; of one that is too long to be read, an end that could be
    the beginning of a value waits for the rest.
    """
    lines = talks.whole_lines(data, is_skipping=is_skipping, is_last=is_last)
    raw = data[: lines.length]
    if not mask:
        return lines, raw
    if not is_last and not raw.endswith(b"\n"):
        raw = raw[: len(raw) - mask.beginning_at_end(raw)]
    masked = mask.raw(raw)
    if masked is not raw:
        again = masked + data[len(raw) :]
        lines = talks.whole_lines(again, is_skipping=is_skipping, is_last=is_last)
    return replace(lines, length=len(raw)), masked


def apart(told: Told) -> list[Told]:
    """The same in parts. Each has few lines, and a gap at its beginning if at all: what was written
    before a gap is heard, too."""
    parts: list[list[tuple[str, Chunk | Gap]]] = [[]]
    for stream, item in told.output:
        if stream != "stdout":
            parts[-1].append((stream, item))
        elif isinstance(item, Gap):
            parts.append([(stream, item)])
        else:
            first, *more = _few_lines(item)
            parts[-1].append((stream, first))
            parts += [[(stream, each)] for each in more]
    *before, last = (tuple(part) for part in parts)
    return [*(Told(part) for part in before if part), Told(last, told.exit)]


def _few_lines(chunk: Chunk) -> list[Chunk]:
    """The chunk, divided after every `_LINES_AT_ONCE` lines."""
    if chunk.data.count(b"\n") <= _LINES_AT_ONCE:
        return [chunk]
    lines, parts, at = chunk.data.split(b"\n"), [], chunk.offset
    for start in range(0, len(lines), _LINES_AT_ONCE):
        data = b"\n".join(lines[start : start + _LINES_AT_ONCE])
        if start + _LINES_AT_ONCE < len(lines):
            data += b"\n"
        if data:
            parts.append(Chunk(at, data))
            at += len(data)
    return parts


class Steps:
    """A conversation while several lines of it are heard."""

    def __init__(self, agent: Agent, conversation: Conversation, mask: Mask) -> None:
        self._agent = agent
        self._mask = mask
        self.conversation = conversation
        self.events: list[AgentEvent] = []
        self.delivered: list[str] = []
        self.seen: list[str] = []

    def hear(self, line: bytes | None) -> None:
        talk = self._left_out() if line is None else self._heard(line)
        is_full = self.conversation.beyond > _MOST_BEYOND
        told = () if is_full else talk.events
        if self._mask:  # an escape may hide in a line what an event has
            told = tuple(replace(each, data=self._mask.told(each.data)) for each in told)
        events = tuple(piece for event in told for piece in in_pieces(event))
        conversation = talks.stepped(self.conversation, replace(talk, events=events))
        conversation = replace(conversation, lines=conversation.lines + 1)
        conversation, events = self._limited(conversation, events)
        if received := (*talk.delivered, *talk.seen):
            conversation = talks.received(conversation, received)
        self.conversation = conversation
        self.events += events
        self.delivered += talk.delivered
        self.seen += talk.seen

    def _heard(self, line: bytes) -> Talk:
        """A line that an adapter fails on costs that line, not the task."""
        talk = self.conversation.talk
        try:
            return self._agent.hear(talk, line)
        except Exception as error:  # noqa: BLE001 - whatever an agent writes, it is told
            kind = type(error).__name__  # its text may have what must not be kept
            _log.warning("a line of an agent was not understood", extra={"error": kind})
            return self._not_read(f"was not understood: {kind}")

    def _left_out(self) -> Talk:
        return self._not_read(f"is longer than {LONGEST_LINE >> 20} MiB and was left out")

    def _not_read(self, why: str) -> Talk:
        message = f"line {self.conversation.lines + 1} of its output {why}"
        event = AgentEvent(AgentEventKind.ERROR, {"message": message, "final": False})
        return self.conversation.talk.further(events=(event,), is_over=self.conversation.is_over)

    def _limited(self, conversation: Conversation, events: Events) -> tuple[Conversation, Events]:
        """What is always told is told without end by nobody: such an agent is ended."""
        if conversation.events <= MOST_EVENTS:
            return conversation, events
        always = tuple(each for each in events if each.kind in _ALWAYS_TOLD)
        room = _MOST_BEYOND - conversation.beyond
        if always:
            conversation = replace(conversation, beyond=conversation.beyond + len(always))
        if conversation.beyond <= _MOST_BEYOND:
            return conversation, events
        why = f"the agent sent more than {MOST_EVENTS + _MOST_BEYOND} events and was stopped"
        if conversation.why_stopped is None:
            conversation = replace(conversation, why_stopped=Reason.TOO_MUCH, stop_detail=why)
        event = AgentEvent(AgentEventKind.ERROR, {"message": why, "final": False})
        told = (*always[:room], event) if room >= 0 else ()
        return replace(conversation, must_stop=True), told


def read_errors(conversation: Conversation, told: Told, mask: Mask) -> Conversation:
    at = conversation.offsets.get("stderr", 0)
    for stream, item in told.output:
        if stream == "stderr":
            at = item.offset + len(item.data) if isinstance(item, Chunk) else item.end
            if isinstance(item, Chunk):
                conversation = talks.complained(conversation, item.data)
    errors = mask.text(conversation.errors)
    return replace(conversation, errors=errors, offsets={**conversation.offsets, "stderr": at})


def spent_of(events: Sequence[AgentEvent], turns: int) -> Spent:
    total = Spent(turns=turns)
    for event in events:
        if event.kind is AgentEventKind.USAGE:
            said = event.data
            total = total.plus(
                Spent(
                    int(_amount(said.get("input_tokens"))),
                    int(_amount(said.get("cached_tokens"))),
                    int(_amount(said.get("output_tokens"))),
                    _amount(said.get("cost_usd")),
                    reasoning_tokens=_thought(said),
                )
            )
    return total


def _thought(said: Mapping[str, object]) -> int:
    """It is of the output, whatever an agent says."""
    output = int(_amount(said.get("output_tokens")))
    return min(output, int(_amount(said.get("reasoning_tokens"))))


def _amount(said: object) -> float:
    """What an agent says of itself is believed as far as it can be."""
    if not isinstance(said, int | float) or isinstance(said, bool) or not 0 <= said <= _MOST:
        return 0.0
    return said


def bounded(events: Sequence[AgentEvent], before: int) -> list[AgentEvent]:
    """Return the events that fit the limit, a note, and then only the kinds that are always kept.
    `before` events came earlier."""
    room = max(0, MOST_EVENTS - before)
    told = list(events[:room])
    if len(events) > room:
        if before <= MOST_EVENTS:
            why = (
                f"limit of {MOST_EVENTS} events reached: later ones are only in the agent's output"
            )
            told.append(_note(why))
        told += (each for each in events[room:] if each.kind in _ALWAYS_TOLD)
    return told


def cut_at_end(conversation: Conversation) -> list[AgentEvent]:
    """Return notes about events and output that were not kept."""
    cut = conversation.events - MOST_EVENTS - conversation.beyond
    told = []
    if cut > 0:
        told.append(_note(f"{cut} of its {conversation.events} events were left out"))
    if conversation.raw > MOST_RAW:
        kept = f"the first {MOST_RAW >> 20} MiB"
        told.append(_note(f"output limit reached: {kept} of {conversation.raw} bytes are kept"))
    return told


def unread(size: int) -> AgentEvent:
    """Return a note about output that was not read before the agent was stopped."""
    return _note(f"{size} bytes of output were not read, because the agent was stopped")


def _note(text: str) -> AgentEvent:
    return AgentEvent(AgentEventKind.OTHER, {"text": text})
