"""What an agent at work is told: handed to it in order, and what it has taken of that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paddock.domain import conversation as talks
from paddock.domain.agent import Brief, Door, PlacedFile
from paddock.domain.agent_event import AgentEvent
from paddock.domain.broker.masking import NO_MASK, Mask
from paddock.domain.conversation import Conversation, Out
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.message import Message, Mode
from paddock.guest_client.messages import MessageState as InboxState
from paddock.ports.agent import Agent
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Transaction
from paddock.services import task_mail
from paddock.services.task_hold import Hold
from paddock.services.transfers import TransferGuest

_AT_ONCE = 16
_SHORTEST_S = 0.001
_AT_ONCE_S = 0.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What an agent is started with."""

    agent: Agent
    guest: TransferGuest
    brief: Brief
    files: tuple[PlacedFile, ...] = ()
    """Besides those that the agent itself wants."""
    mask: Mask = NO_MASK
    """What is not to be kept of what it writes."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What a step means for messages; written with it."""

    delivered: Sequence[str] = ()
    seen: Sequence[str] = ()
    claimed: str = ""
    """The adapter is given this one, unless it is too late for that."""
    expired: Sequence[str] = ()

    def write(self, tx: Transaction, task_id: str, now: float) -> None:
        if self.claimed and not task_mail.may_be_told(tx, (self.claimed,), now):
            raise TooLate(self.claimed)
        task_mail.note_expired(tx, self.expired, now)
        task_mail.note_delivered(tx, task_id, self.delivered, now)
        task_mail.note_seen(tx, task_id, self.seen, now)


class TooLate(Exception):
    """A message was to be delivered by a time that has passed: nothing is written, nothing told."""


class Keep(Protocol):
    """Writes down where a conversation stands, with all that follows."""

    async def __call__(
        self, conversation: Conversation, events: Sequence[AgentEvent] = (), mail: Mail = ...
    ) -> None: ...


class Post:
    """To one run of an agent."""

    def __init__(self, clock: Clock, hold: Hold, setting: Setting, *, keep: Keep) -> None:
        self._clock = clock
        self._hold = hold
        self._agent = setting.agent
        self._guest = setting.guest
        self._keep = keep
        self.is_deaf = False
        """It reads no more: its end says the rest."""
        self.due_at: float | None = _AT_ONCE_S
        """When the first of what the adapter keeps for later may be too late. What it had before
        this follower came may be so already."""

    @property
    def _conversation(self) -> Conversation:
        return self._hold.task.conversation

    @property
    def _key(self) -> str:
        return self._conversation.run_key(self._hold.task.id)

    async def hear(self) -> None:
        """What people have sent goes to the adapter, which knows when the agent can be told."""
        now = self._clock.wall()
        mail = await self._hold.look(lambda tx, task: task_mail.waiting(tx, task.id, now))
        for message in mail:
            if message.id not in self._conversation.told:
                await self._tell(message)
        self.due_at = _AT_ONCE_S  # what is too late by now is not among the mail

    async def _tell(self, message: Message) -> None:
        talk = self._agent.tell(self._conversation.talk, message)
        told = talks.told(self._conversation, talk, message)
        told = talks.received(told, (*talk.delivered, *talk.seen))
        try:
            await self._keep(told, talk.events, Mail(talk.delivered, talk.seen, message.id))
        except TooLate:
            return  # whoever looks after such messages tells of it

    async def expire(self) -> None:
        """What the adapter keeps for later, and is too late by now, is taken back."""
        now = self._clock.wall()
        if self.due_at is None or now < self.due_at:
            return
        names = talks.held(self._conversation)
        found = await self._hold.look(lambda tx, _: [tx.messages.get(ANY_TEAM, it) for it in names])
        held = [each for each in found if each is not None and each.mode is not Mode.INTERRUPT]
        late = [each.id for each in held if each.is_due(now)]
        if late:
            talk = self._agent.drop(self._conversation.talk, late)
            dropped = talks.dropped(self._conversation, talk, late)
            await self._keep(dropped, talk.events, Mail(expired=late))
        self.due_at = _first_due([each for each in held if each.id not in late])

    async def deliver(self) -> None:
        """In order."""
        batch = self._conversation.outbox[:_AT_ONCE]
        if not batch or self.is_deaf:
            return
        conversation, direct = self._conversation, []
        for out in batch:
            try:
                await self._hand_over(out)
            except (Conflict, NotFound):
                self.is_deaf = True
                return
            conversation = talks.posted(conversation, out)
            direct += [out.message] if out.message and out.door is Door.STDIN else []
        await self._keep(talks.received(conversation, direct), mail=Mail(direct))

    async def _hand_over(self, out: Out) -> None:
        if out.door is Door.STDIN:
            await self._guest.runs.send_input(self._key, out.data, seq=out.seq)
            return
        ttl = None if out.until is None else max(_SHORTEST_S, out.until - self._clock.wall())
        await self._guest.messages.put(self._key, out.message, out.data, ttl=ttl)

    async def look_into_inbox(self) -> None:
        """What the agent has taken by itself, and what lay there for too long."""
        if not self._conversation.inboxed:
            return
        listed = await self._guest.messages.list(self._key)
        states = {each.id: each.state for each in listed}
        for name in self._conversation.inboxed:
            if states.get(name) is InboxState.DELIVERED:
                talk = self._agent.taken(self._conversation.talk, name)
                conversation = talks.stepped(self._conversation, talk)
                conversation = talks.received(conversation, (name, *talk.seen))
                await self._keep(conversation, talk.events, Mail([name], talk.seen))
            elif states.get(name) is InboxState.EXPIRED:
                conversation = talks.received(self._conversation, (name,))
                await self._keep(conversation, mail=Mail(expired=[name]))


def _first_due(mail: Sequence[Message]) -> float | None:
    """What interrupts is not taken back: what it was to break off is broken off by then."""
    moments = [each.expires_at for each in mail if each.mode is not Mode.INTERRUPT]
    return min((each for each in moments if each is not None), default=None)
