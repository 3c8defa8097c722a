"""Desks of runs: what programs of a sandbox ask by HTTP, and what they are answered."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paddock.domain.errors import Broken
from paddock.guest_client import answers
from paddock.guest_client.answers import Message
from paddock.guest_client.transport import Transport, encode

_SERVICE = "paddock.Guest"
_SLACK_S = 10.0


@dataclass(frozen=True, slots=True)
class DeskCall:
    """A request that a program has made and waits with for an answer."""

    id: str
    number: int
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Desks:
    """Of one sandbox's runs, by the run's key."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def open(self, run: str) -> int:
        """The port, on the sandbox's loopback; one that is open stays as it is."""
        answer = await self._transport.call(f"{_SERVICE}/OpenDesk", {"key": run})
        return answers.whole(answer, "port")

    async def take(self, run: str, after: int, *, wait_s: float) -> Sequence[DeskCall]:
        """Calls beyond a number that nobody has answered. NotFound when there is no desk."""
        message: Message = {"key": run, "after": after, "waitMs": round(wait_s * 1000)}
        answer = await self._transport.call(
            f"{_SERVICE}/TakeCalls", message, timeout=wait_s + _SLACK_S
        )
        return [_call(each) for each in answers.many(answer, "calls")]

    async def answer(self, run: str, call: str, status: int, body: bytes) -> None:
        """JSON. Who has gone meanwhile needs none."""
        message = {"key": run, "id": call, "status": status, "body": encode(body)}
        await self._transport.call(f"{_SERVICE}/AnswerCall", message)

    async def close(self, run: str) -> None:
        """Absent is success."""
        await self._transport.call(f"{_SERVICE}/CloseDesk", {"key": run})


def _call(message: Message) -> DeskCall:
    headers = answers.inner(message, "headers")
    try:
        body = base64.b64decode(answers.text(message, "body"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Broken(f"the guest gave a call that cannot be read: {error}") from error
    return DeskCall(
        id=answers.text(message, "id"),
        number=answers.whole(message, "number"),
        method=answers.text(message, "method"),
        path=answers.text(message, "path"),
        headers={str(name): str(value) for name, value in headers.items()},
        body=body,
    )
