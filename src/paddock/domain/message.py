"""Messages into a running agent: each is delivered once, and says how far it has come.

queued <──> delivered ──> seen
   └──────────┴──> undelivered, when its task ends before

It is queued again when the agent's program died before it had read it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from paddock.domain.errors import Conflict, InvalidRequest

MESSAGE_PREFIX = "msg"
LONGEST_MESSAGE = 256 << 10
MOST_QUEUED = 100


class Mode(StrEnum):
    """When an agent gets it. Not every agent has every mode."""

    NOW = "now"
    """At the next tool boundary, within the same turn."""
    TURN = "turn"
    """When this turn is over, as a turn of its own."""
    INTERRUPT = "interrupt"
    """At once: what the agent is doing is broken off."""


class MessageState(StrEnum):
    """How far it has come."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    """The agent's program has it."""
    SEEN = "seen"
    """A request to the model held it."""
    UNDELIVERED = "undelivered"


_M = MessageState
TRANSITIONS: dict[MessageState, frozenset[MessageState]] = {
    _M.QUEUED: frozenset({_M.DELIVERED, _M.UNDELIVERED}),
    _M.DELIVERED: frozenset({_M.SEEN, _M.QUEUED, _M.UNDELIVERED}),
    _M.SEEN: frozenset(),
    _M.UNDELIVERED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message, and its receipt."""

    id: str
    team_id: str
    task_id: str
    text: str
    mode: Mode
    actor: str
    queued_at: float
    state: MessageState = MessageState.QUEUED
    delivered_at: float | None = None
    seen_at: float | None = None
    detail: str = ""


def delivered(message: Message, now: float) -> Message:
    return replace(_to(message, _M.DELIVERED), delivered_at=now)


def seen(message: Message, now: float) -> Message:
    return replace(_to(message, _M.SEEN), seen_at=now)


def put_back(message: Message) -> Message:
    return replace(_to(message, _M.QUEUED), delivered_at=None)


def given_up(message: Message, why: str) -> Message:
    return replace(_to(message, _M.UNDELIVERED), detail=why)


def check_text(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise InvalidRequest(
            "the message is empty or has a NUL character", remediation="send words"
        )
    if (size := len(text.encode())) > LONGEST_MESSAGE:
        raise InvalidRequest(
            f"the message has {size} bytes; {LONGEST_MESSAGE} are the most",
            remediation="put the long part into a file of the sandbox, and name that",
        )
    return text


def _to(message: Message, target: MessageState) -> Message:
    if target not in TRANSITIONS[message.state]:
        raise Conflict(f"message {message.id} is {message.state} and cannot become {target}")
    return replace(message, state=target)
