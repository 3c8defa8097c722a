"""How a conversation with an agent is kept, so that whoever goes on with it repeats nothing.

What the agent wrote is read line by line; each line, the events it gave and the answers it called
for are written down together. Answers are numbered, and go to the agent after that: whoever finds
some that were not sent, or may not have been, sends them again under their number.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paddock.domain.agent import Door, Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind, Verdict
from paddock.domain.message import Message
from paddock.domain.reason import Reason

LONGEST_LINE = 8 << 20
"""A longer line is left out: an event says so, and the next line is read."""
_MOST_ERRORS = 4096
_BOUNDARIES = 9
_ANSWERS = frozenset({AgentEventKind.THINKING, AgentEventKind.MESSAGE, AgentEventKind.TOOL_CALL})
"""What a model's answer is told as."""
_TOOLS = frozenset({AgentEventKind.TOOL_CALL, AgentEventKind.FILE_EDITED})


class Stage(StrEnum):
    """Whose turn it is, and what for."""

    PLAN = "plan"
    WORK = "work"
    REVIEW = "review"
    """Somebody else looks at what was done, in a session of their own."""


@dataclass(frozen=True, slots=True)
class Out:
    """Something that is on its way to the agent."""

    seq: int
    data: bytes = field(repr=False)
    door: Door = Door.STDIN
    message: str = ""
    until: float | None = None
    """In an inbox it lies no longer than that."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What has to be remembered of a run to say how it went; see `Verdict`."""

    error: str = ""
    last_words: str = ""
    did_something: bool = False
    has_completed: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """With one agent, in one or several runs after another."""

    run: int = 0
    """The current one; 0 is before the first."""
    prompt: str = ""
    """What the current run was begun with, where that is not the task's own."""
    session: str = ""
    """What the agent can be resumed by."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The adapter's own."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """How far each stream was read; of standard output only whole lines."""
    is_skipping: bool = False
    """It is in the middle of a line that is too long."""
    said: int = 0
    """How much was said on the agent's standard input."""
    outbox: tuple[Out, ...] = ()
    judged: Judged = field(default_factory=Judged)
    errors: str = ""
    """The end of what it wrote to standard error."""
    told: tuple[str, ...] = ()
    """Messages that the adapter has been given and the agent's program has not yet."""
    inboxed: tuple[str, ...] = ()
    """Messages that lie where the agent looks, and that it has not taken yet."""
    events: int = 0
    """How many events it has led to."""
    beyond: int = 0
    """How many of them were told although it had told more than is kept."""
    lines: int = 0
    """How many lines of its current run were heard."""
    turns: int = 0
    """How many answers its model has given in its current run, each with the tools that it called
    for."""
    boundaries: tuple[float, ...] = ()
    """When the last tools of its current run had ended."""
    is_answering: bool = False
    """There is something of an answer that is not counted yet."""
    raw: int = 0
    """How many bytes of its output are kept."""
    is_started: bool = False
    """The guest has begun its current run."""
    is_over: bool = False
    is_closing: bool = False
    """Its input is closed: what comes for it from now on is for the next run."""
    must_stop: bool = False
    stopping_since: float | None = None
    why_stopped: Reason | None = None
    stop_detail: str = ""
    must_restart: bool = False
    """It was ended because it stood still: it is to begin again."""
    then: str = ""
    """What the next run begins with."""
    then_told: tuple[str, ...] = ()
    """The messages that this is."""
    opening: tuple[str, ...] = ()
    """The messages that the current run was begun with, until it shows that it has read them."""
    exit_code: int | None = None
    has_ended: bool = False
    has_used_tool: bool = False
    """Whether the agent has called a tool or edited a file, in this run or an earlier one."""
    is_lost: bool = False
    """Its run ended because the machine or the guest under it did."""
    stage: Stage = Stage.WORK
    origin: str = ""
    """The session that its first run went on with: of the task that it follows."""
    aside: str = ""
    """During a review, the session of whoever did the work."""
    back_to: float | None = None
    """Its sandbox was lost, and it has not begun in the next one, where everything is as it was at
    this time; 0 is as at the very beginning."""
    came_back: float | None = None
    """The same of the first run there, if that is to go on with its session."""

    @property
    def talk(self) -> Talk:
        return Talk(state=self.state)

    @property
    def is_running(self) -> bool:
        return self.run > 0 and not self.has_ended

    @property
    def own_session(self) -> str:
        """Of the agent that does the work, whoever is at it now."""
        return self.aside if self.stage is Stage.REVIEW else self.session

    def run_key(self, task_id: str) -> str:
        return f"{task_id}.{self.run}"


def begun(
    conversation: Conversation,
    prompt: str = "",
    mail: Sequence[str] = (),
    *,
    stage: Stage | None = None,
) -> Conversation:
    """The next run, with the same session; a review has one of its own."""
    stage = conversation.stage if stage is None else stage
    goes_on = stage is Stage.REVIEW and conversation.stage is Stage.REVIEW
    own = conversation.own_session
    fresh = "" if stage is Stage.REVIEW else own
    return Conversation(
        run=conversation.run + 1,
        prompt=prompt,
        session=conversation.session if goes_on else fresh,
        stage=stage,
        aside=own if stage is Stage.REVIEW else "",
        events=conversation.events,
        beyond=conversation.beyond,
        raw=conversation.raw,
        opening=(*conversation.then_told, *mail),
        origin=conversation.origin,
        came_back=conversation.back_to if conversation.session else None,
        has_used_tool=conversation.has_used_tool,
    )


def displaced(conversation: Conversation, session: str, as_of: float) -> Conversation:
    """Its sandbox was lost. Who planned, plans again; everybody else works again, since what they
    were to look at may not be there any more."""
    if not conversation.run:
        return conversation
    return Conversation(
        run=conversation.run,
        session=session,
        origin=conversation.origin,
        stage=Stage.PLAN if conversation.stage is Stage.PLAN else Stage.WORK,
        events=conversation.events,
        beyond=conversation.beyond,
        raw=conversation.raw,
        has_ended=True,
        is_lost=True,
        back_to=as_of,
    )


def stepped(conversation: Conversation, talk: Talk) -> Conversation:
    """After one more step of it."""
    said, outbox = conversation.said, list(conversation.outbox)
    for say in talk.says:
        if say.door is Door.STDIN:
            said += 1
        seq = said if say.door is Door.STDIN else 0
        outbox.append(Out(seq, say.data, say.door, say.message))
    turns, is_answering = _turned(conversation, talk.events)
    return replace(
        conversation,
        state=talk.state,
        session=talk.session or conversation.session,
        said=said,
        outbox=tuple(outbox),
        events=conversation.events + len(talk.events),
        turns=turns,
        is_answering=is_answering,
        judged=_heard(conversation.judged, talk.events),
        has_used_tool=conversation.has_used_tool or _uses_tool(conversation.stage, talk.events),
        is_over=talk.is_over,
        must_stop=conversation.must_stop or talk.must_stop,
        then=talk.then or conversation.then,
    )


def told(conversation: Conversation, talk: Talk, message: Message) -> Conversation:
    """The adapter was given a message."""
    stepped_on = stepped(conversation, talk)
    then_told = (*stepped_on.then_told, message.id) if talk.then else stepped_on.then_told
    outbox = tuple(
        replace(out, until=message.expires_at) if out.message == message.id else out
        for out in stepped_on.outbox
    )
    given = (*stepped_on.told, message.id)
    return replace(stepped_on, told=given, then_told=then_told, outbox=outbox)


def is_in_hand(conversation: Conversation, message_id: str) -> bool:
    """The adapter of an agent at work was given it, and its program may have it by now."""
    return conversation.is_running and message_id in conversation.told


def held(conversation: Conversation) -> tuple[str, ...]:
    """Messages that the adapter keeps to itself for now: they can be taken back."""
    if not conversation.is_running:
        return ()
    under_way = {*(out.message for out in conversation.outbox), *conversation.inboxed}
    return tuple(each for each in conversation.told if each not in under_way)


def dropped(conversation: Conversation, talk: Talk, message_ids: Collection[str]) -> Conversation:
    """The adapter has taken these back, and the agent never hears of them."""
    stepped_on = received(stepped(conversation, talk), message_ids)
    return replace(stepped_on, is_over=conversation.is_over or talk.is_over)


def posted(conversation: Conversation, out: Out) -> Conversation:
    """This has reached the agent's program, or the place where it looks."""
    inboxed = conversation.inboxed
    if out.door is Door.INBOX and out.message:
        inboxed = (*inboxed, out.message)
    rest = tuple(each for each in conversation.outbox if each != out)
    return replace(conversation, outbox=rest, inboxed=inboxed)


def received(conversation: Conversation, message_ids: Collection[str]) -> Conversation:
    """The agent's program has these messages."""

    def without(ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in ids if each not in message_ids)

    return replace(
        conversation,
        told=without(conversation.told),
        inboxed=without(conversation.inboxed),
    )


def stopped(
    conversation: Conversation, talk: Talk, now: float, why: tuple[Reason | None, str]
) -> Conversation:
    """The agent was asked to end."""
    reason, detail = why
    return replace(
        stepped(conversation, talk), stopping_since=now, why_stopped=reason, stop_detail=detail
    )


def complained(conversation: Conversation, data: bytes) -> Conversation:
    """It wrote to standard error."""
    text = conversation.errors + data.decode("utf-8", "replace")
    return replace(conversation, errors=text[-_MOST_ERRORS:])


def paced(conversation: Conversation, events: Sequence[AgentEvent], now: float) -> Conversation:
    """After these events: where a tool has ended, an agent can be told something."""
    if not any(each.kind is AgentEventKind.TOOL_RESULT for each in events):
        return conversation
    return replace(conversation, boundaries=(*conversation.boundaries, now)[-_BOUNDARIES:])


def ended(conversation: Conversation, exit_code: int | None, *, is_lost: bool) -> Conversation:
    return replace(conversation, exit_code=exit_code, has_ended=True, is_lost=is_lost, outbox=())


def verdict(conversation: Conversation) -> Verdict:
    judged = conversation.judged
    return Verdict(judged.error, judged.last_words, judged.did_something, judged.has_completed)


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines, and how far they reach."""

    lines: tuple[bytes | None, ...]
    """None in place of a line that is too long."""
    length: int
    is_skipping: bool
    """What follows is the rest of a line that was left out."""


def whole_lines(data: bytes, *, is_skipping: bool, is_last: bool) -> Lines:
    """What can be read of `data`. The rest of it is read again when more has come, unless nothing
    more will, or a line is longer than any can be."""
    *lines, rest = data.split(b"\n")
    if is_skipping and lines:
        lines, is_skipping = lines[1:], False
    if is_last:
        if rest and not is_skipping:
            lines.append(rest)
        rest = b""
    kept = [line if len(line) <= LONGEST_LINE else None for line in lines]
    if is_skipping:
        rest = b""
    elif len(rest) > LONGEST_LINE:
        kept.append(None)
        rest, is_skipping = b"", True
    return Lines(tuple(kept), len(data) - len(rest), is_skipping)


def _heard(judged: Judged, events: tuple[AgentEvent, ...]) -> Judged:
    told = Verdict(judged.error, judged.last_words, judged.did_something, judged.has_completed)
    for event in events:
        told.hear(event)
    return Judged(told.error, told.last_words, told.did_something, told.has_completed)


def _uses_tool(stage: Stage, events: tuple[AgentEvent, ...]) -> bool:
    """A reviewer's tools are no sign of work."""
    return stage is not Stage.REVIEW and any(each.kind in _TOOLS for each in events)


def _turned(conversation: Conversation, events: tuple[AgentEvent, ...]) -> tuple[int, bool]:
    """An answer counts when the first of its tools has given a result, after which the model is
    asked again, or when it was the last."""
    turns, is_answering = conversation.turns, conversation.is_answering
    for event in events:
        if event.kind in _ANSWERS:
            is_answering = True
        elif event.kind is AgentEventKind.COMPLETED:
            # The last words may be told with the end only.
            turns += is_answering or bool(event.data.get("text"))
            is_answering = False
        elif event.kind is AgentEventKind.TOOL_RESULT:
            turns += is_answering
            is_answering = False
    return turns, is_answering


def usage_of(events: tuple[AgentEvent, ...]) -> list[Mapping[str, Any]]:
    return [event.data for event in events if event.kind is AgentEventKind.USAGE]
