"""Messages to a run: put into its inbox at least once, and whether the run has taken them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paddock.guest_client import answers
from paddock.guest_client.answers import Message
from paddock.guest_client.transport import Transport, encode

_SERVICE = "paddock.Guest"


class MessageState(StrEnum):
    """New until the run moves it out of `new`; expired when its time ran out there."""

    NEW = "new"
    DELIVERED = "delivered"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A message as the guest knows it. `file` is its name in the run's inbox."""

    id: str
    file: str
    size: int
    put_at: float
    state: MessageState


class Messages:
    """The inboxes of one sandbox's runs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(
        self, run: str, message_id: str, body: bytes | Any, *, ttl: float | None = None
    ) -> InboxMessage:
        """Bytes as they are, anything else as JSON. The same id again changes nothing."""
        message: Message = {"key": run, "id": message_id}
        if isinstance(body, bytes):
            message["body"] = encode(body)
        else:
            message["json"] = body
        if ttl is not None:
            message["ttlMs"] = round(ttl * 1000)
        answer = await self._transport.call(f"{_SERVICE}/PutMessage", message)
        return _message(answers.inner(answer, "message"))

    async def list(self, run: str) -> list[InboxMessage]:
        """In the order they were put."""
        answer = await self._transport.call(f"{_SERVICE}/ListMessages", {"key": run})
        return [_message(item) for item in answers.many(answer, "messages")]


def _message(message: Message) -> InboxMessage:
    return InboxMessage(
        id=answers.text(message, "id"),
        file=answers.text(message, "file"),
        size=answers.whole(message, "size"),
        put_at=answers.number(message, "putAt"),
        state=answers.choice(message, "state", MessageState),
    )
