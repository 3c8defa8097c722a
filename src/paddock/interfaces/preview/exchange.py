"""One request and its answer: finds the upstream, joins it with the client, ends with both."""

import asyncio
import logging
import socket
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from paddock.domain.errors import PaddockError
from paddock.interfaces.preview.contract import Answer, Reply, Upstream
from paddock.interfaces.preview.hub import Hub
from paddock.interfaces.preview.pages import Trouble
from paddock.interfaces.preview.replies import render
from paddock.interfaces.preview.request import Request
from paddock.interfaces.preview.sockets import end_with_reset
from paddock.interfaces.preview.splice import Splice
from paddock.interfaces.preview.upstream import UpstreamConnection

if TYPE_CHECKING:
    from paddock.interfaces.preview.client import ClientConnection

_LINGER_S = 2.0
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})

# Not a union, which would be made anew for every request.
_ANSWERS = (Upstream, Reply)

_log = logging.getLogger(__name__)


class Exchange:
    """Lives from a request's head to the last byte of its answer."""

    __slots__ = (
        "_activity",
        "_hub",
        "_is_reused",
        "_splice",
        "_stay",
        "_task",
        "client",
        "request",
        "upstream",
        "where",
    )

    where: Upstream

    def __init__(self, hub: Hub, client: "ClientConnection", request: Request) -> None:
        self.client = client
        self.request = request
        self.upstream: UpstreamConnection | None = None
        self._hub = hub
        self._task: asyncio.Task[None] | None = None
        self._activity: AbstractContextManager[object] | None = None
        self._stay: AbstractContextManager[object] | None = None
        self._splice: Splice | None = None
        self._is_reused = False

    def begin(self) -> None:
        """Ask where it goes, and send it there."""
        try:
            answer = self._hub.resolve(self.request.head)
            if not isinstance(answer, _ANSWERS):
                self._task = self._hub.spawn(self._resolve(answer))
            elif self._take(answer):
                self._task = self._hub.spawn(self._dial())
        except Exception:  # noqa: BLE001 - the owner's fault must not take the listener along
            self._fault()

    def switch(self, answer: bytes) -> None:
        """The upstream speaks another protocol from now on."""
        client, upstream = self.client, cast(UpstreamConnection, self.upstream)
        self._hub.clients.discard(client)
        splice = self._splice = Splice(self._hub, self._disconnected)
        splice.join(client.transport, upstream.transport)
        splice.begin(answer, client.intake.held, is_full=client.is_full, ended=client.has_ended)

    def finish(self) -> None:
        """The answer is complete."""
        self._leave()
        self.client.finished()

    def cancel(self) -> None:
        """The client is gone, or gets another answer."""
        if self._task is not None:
            self._task.cancel()
        if self.upstream is not None:
            self.upstream.abort()
        self._leave()

    def filler(self) -> bytes:
        """What may be sent in the middle of the answer without being part of it."""
        return b"" if self.upstream is None else self.upstream.filler()

    def upstream_failed(self, why: str, *, has_answered: bool) -> None:
        """The connection is lost. A stale idle one is replaced, once, if that is safe."""
        self.upstream = None
        if not has_answered and self._is_reused and self._is_repeatable():
            self._is_reused = False
            self._hub.counts.retried += 1
            self._task = self._hub.spawn(self._dial())
            return
        self.fail(Trouble(502, "bad_gateway", f"What listens there gave no answer: {why}."))

    def fail(self, trouble: Trouble) -> None:
        """Answer in the upstream's place, if it has not begun to answer itself."""
        if self.client.is_answering:
            self.break_off()
            return
        self._hub.counts.failed += 1
        self.reply(self._hub.pages.error(self.request.head, trouble))

    def break_off(self) -> None:
        """The answer has begun and cannot be completed."""
        self._hub.counts.failed += 1
        client = self.client
        is_framed = self.upstream is not None and self.upstream.is_framed
        self.cancel()
        if not is_framed:
            # It would look complete if its connection ended in order.
            end_with_reset(client.transport)
        if client.is_full or not is_framed:
            client.transport.abort()
            return
        client.intake.discard()
        client.deadline = self._hub.loop.time() + _LINGER_S
        client.transport.close()  # with TLS it says that it ends, unlike an abort

    @property
    def is_answered(self) -> bool:
        return self._splice is not None or self.client.is_answering

    def cut(self, status: int, code: str, message: str, remediation: str) -> None:
        """The client may not be here any more."""
        if self._splice is not None:
            # Between which of its frames we are, nobody knows, so there is no last word to say.
            self._splice.end(gently=False)
        else:
            self.fail(Trouble(status, code, message, remediation))

    def time_out(self) -> None:
        """The answer did not begin in time."""
        message = "What listens there took too long to answer."
        self.fail(Trouble(504, "response_timeout", message, retryable=True))

    def reply(self, reply: Reply) -> None:
        """Answer without an upstream."""
        self.cancel()
        ending = self.client.start_answer(closes=False)
        head_only = self.request.head.method == "HEAD"
        self.client.write(render(reply, ending, head_only=head_only))
        self.client.finished()

    async def _resolve(self, answer: Awaitable[Answer]) -> None:
        task = self._task
        try:
            found = await answer
            self._task = None
            if not self._take(found):
                return
        except Exception:  # noqa: BLE001 - the owner's fault must not take the listener along
            self._task = None
            self._fault()
            return
        self._task = task
        await self._dial()

    def _take(self, answer: Answer) -> bool:
        """Go where the answer says. True if a connection has to be made first."""
        if isinstance(answer, Reply):
            self.reply(answer)
            return False
        self.where = answer
        if answer.activity is not None:
            activity = answer.activity()
            activity.__enter__()
            self._activity = activity
        if answer.staying is not None:
            stay = answer.staying(self)
            stay.__enter__()
            self._stay = stay
        idle = self._hub.pool.take(answer.key)
        if idle is None:
            return True
        self._hub.counts.reused += 1
        self._is_reused = True
        self._send(cast(UpstreamConnection, idle))
        return False

    async def _dial(self) -> None:
        where = self.where
        try:
            async with asyncio.timeout(self._hub.config.connect_timeout_s):
                connection = await self._connect(await where.dial())
        except TimeoutError:
            reply = self._page(504, "connect_timeout", "Connecting to the port took too long.")
        except (OSError, PaddockError) as error:
            reply = await self._refused(error)
        except Exception:  # noqa: BLE001 - the owner's fault must not take the listener along
            self._task = None
            self._fault()
            return
        else:
            self._task = None
            self._hub.counts.dialled += 1
            self._send(connection)
            return
        self._task = None
        self._hub.counts.failed += 1
        self.reply(reply)

    async def _connect(self, opened: socket.socket) -> UpstreamConnection:
        loop, where = self._hub.loop, self.where

        def make() -> UpstreamConnection:
            return UpstreamConnection(self._hub, where.key)

        name = where.server_name if where.tls else None
        try:
            if opened.family == socket.AF_UNIX:
                _, connection = await loop.create_unix_connection(
                    make, sock=opened, ssl=where.tls, server_hostname=name
                )
            else:
                # asyncio itself does so only for sockets that were made with a protocol number.
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _, connection = await loop.create_connection(
                    make, sock=opened, ssl=where.tls, server_hostname=name
                )
        except BaseException:
            opened.close()
            raise
        return connection

    async def _refused(self, error: OSError | PaddockError) -> Reply:
        if self.where.on_refused is not None:
            try:
                return await self.where.on_refused(error)
            except Exception:  # noqa: BLE001 - the plain answer is still there to be given
                _log.exception("saying why a connection was refused failed")
        return self._page(502, "bad_gateway", "Nothing answers at the port this address leads to.")

    def _send(self, connection: UpstreamConnection) -> None:
        self.upstream = connection
        connection.begin(self, self.request.for_upstream(self.where.request))
        self.client.flow()

    def _page(self, status: int, code: str, message: str) -> Reply:
        trouble = Trouble(status, code, message, retryable=status == 504)
        return self._hub.pages.error(self.request.head, trouble)

    def _fault(self) -> None:
        _log.exception("deciding about a request failed", extra={"host": self.request.head.host})
        self._hub.counts.failed += 1
        self.reply(self._page(500, "internal", "Something went wrong on this side."))

    def _is_repeatable(self) -> bool:
        return self.request.length == 0 and self.request.head.method in _IDEMPOTENT

    def _disconnected(self) -> None:
        """The end of an upgraded connection."""
        self._hub.leave(self.client.peer)
        self._leave()

    def _leave(self) -> None:
        activity, self._activity = self._activity, None
        stay, self._stay = self._stay, None
        for entered in (activity, stay):
            if entered is None:
                continue
            try:
                entered.__exit__(None, None, None)
            except Exception:  # noqa: BLE001 - the owner's fault must not take the listener along
                _log.exception("ending a request's activity failed")
