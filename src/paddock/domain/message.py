"""Messages into a running agent: each is delivered once, and says how far it has come.

queued <──> delivered ──> seen
   ├──────────┴──> undelivered, when its task ends before
   └──> expired, when it was to be delivered by then

It is queued again when the agent's program died before it had read it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from paddock.domain.errors import Conflict, InvalidRequest

MESSAGE_PREFIX = "msg"
LONGEST_MESSAGE = 256 << 10
MOST_QUEUED = 100
LONGEST_TTL_S = 7 * 86_400.0


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
    EXPIRED = "expired"
    """It was to be delivered by a certain time, and was not."""


_M = MessageState
TRANSITIONS: dict[MessageState, frozenset[MessageState]] = {
    _M.QUEUED: frozenset({_M.DELIVERED, _M.UNDELIVERED, _M.EXPIRED}),
    _M.DELIVERED: frozenset({_M.SEEN, _M.QUEUED, _M.UNDELIVERED}),
    _M.SEEN: frozenset(),
    _M.UNDELIVERED: frozenset(),
    _M.EXPIRED: frozenset(),
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
    expires_at: float | None = None
    """It is of no use to the agent any more after that; None is always of use."""
    expected_at: float | None = None
    """When the agent was likely to read it, as things were when it was sent; None is unknown."""
    detail: str = ""

    def is_due(self, now: float) -> bool:
        """Its time is up, and no program has it."""
        return (
            self.state is MessageState.QUEUED
            and self.expires_at is not None
            and self.expires_at <= now
        )


def delivered(message: Message, now: float) -> Message:
    return replace(_to(message, _M.DELIVERED), delivered_at=now)


def seen(message: Message, now: float) -> Message:
    return replace(_to(message, _M.SEEN), seen_at=now)


def put_back(message: Message) -> Message:
    return replace(_to(message, _M.QUEUED), delivered_at=None)


def given_up(message: Message, why: str) -> Message:
    return replace(_to(message, _M.UNDELIVERED), detail=why)


def expired(message: Message) -> Message:
    within_s = (message.expires_at or message.queued_at) - message.queued_at
    why = f"no agent had it within the {within_s:g} s that it was good for"
    return replace(_to(message, _M.EXPIRED), delivered_at=None, detail=why)


def check_ttl(ttl_s: float | None) -> float | None:
    if ttl_s is not None and not 0 < ttl_s <= LONGEST_TTL_S:
        raise InvalidRequest(
            f"a message cannot be good for {ttl_s:g} s",
            remediation=f"give more than 0 and at most {LONGEST_TTL_S:g} s, or leave it out",
        )
    return ttl_s


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
