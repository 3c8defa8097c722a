"""The log of events as something to follow: from any point on, without a gap, for ever."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from types import TracebackType
from typing import Self

from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.ports.store import ANY_TEAM, Store

_log = logging.getLogger(__name__)
_REMEMBERED = 8192
_PAGE = 500
_POLL_S = 0.25
_FORGETTING = (EventKind.OWNER_FORGOTTEN, EventKind.APP_FORGOTTEN)


@dataclass(frozen=True, slots=True)
class Interest:
    """Which events somebody wants to hear of."""

    team_id: str = ANY_TEAM
    subject: str = ""
    kinds: frozenset[str] = frozenset()
    app: str = ""

    def covers(self, event: Event) -> bool:
        return (
            self.team_id in (ANY_TEAM, event.team_id)
            and self.subject in ("", event.subject)
            and (not self.kinds or event.kind in self.kinds)
            and self.app in ("", event.data.get("app"))
        )


class EventFeed:
    """What was appended lately is remembered; what is older is read from the store.

    A follower has no queue of its own, only a place in the log, so that a slow one costs nothing
    and loses nothing.
    """

    def __init__(self, store: Store, *, remembered: int = _REMEMBERED, page: int = _PAGE) -> None:
        self._store = store
        self._page = page
        self._recent: deque[Event] = deque(maxlen=remembered)
        self._complete_after = 0
        """Everything later than this is in `_recent`."""
        self._news = asyncio.Event()
        self._poke = asyncio.Event()
        self._closed = False
        self._poller: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._complete_after = await self._store.read(lambda tx: tx.events.last_seq())
        self._store.on_events(self._hear)
        if self._store.is_shared:
            self._poller = asyncio.create_task(self._poll(), name="events of other processes")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        self._wake()
        if self._poller is not None:
            self._poller.cancel()
            with suppress(asyncio.CancelledError):
                await self._poller

    async def follow(self, interest: Interest, after: int) -> AsyncIterator[Event]:
        """Every event of interest later than `after`: first those that were, then as they come.

        Ends when the feed is closed.
        """
        while not self._closed:
            news = self._news
            events, reached = await self._next(interest, after)
            for event in events:
                yield event
            if reached == after:
                await news.wait()
            after = reached

    async def _next(self, interest: Interest, after: int) -> tuple[Sequence[Event], int]:
        """What of interest comes next, and how far into the log that reaches."""
        edge = self._complete_after
        if (known := self._known_after(after)) is not None:
            reached = known[-1].seq if known else after
            return [event for event in known if interest.covers(event)], reached
        page = await self.page(interest, after, self._page)
        reached = page[-1].seq if page else after
        # A short page says that nothing of interest is left before where memory begins.
        return page, reached if len(page) == self._page else max(reached, edge)

    async def page(self, interest: Interest, after: int, limit: int) -> Sequence[Event]:
        """The next of interest; fewer than `limit` only when the log has no more of them."""
        found: list[Event] = []
        # The store does not look into what an event says: of an app are those that are left here.
        size = max(limit, self._page) if interest.app else limit
        while True:
            read = await self._read(interest, after, size)
            found += [event for event in read if interest.covers(event)]
            if len(read) < size or len(found) >= limit:
                return found[:limit]
            after = read[-1].seq

    async def _read(self, interest: Interest, after: int, limit: int) -> Sequence[Event]:
        return await self._store.read(
            lambda tx: tx.events.after(
                after,
                limit,
                team_id=interest.team_id,
                subject=interest.subject,
                kinds=interest.kinds,
            )
        )

    async def last_seq(self) -> int:
        return await self._store.read(lambda tx: tx.events.last_seq())

    def _known_after(self, after: int) -> list[Event] | None:
        """What is remembered from there on; None when that is not all of it."""
        if after < self._complete_after:
            return None
        known = list(takewhile(lambda event: event.seq > after, reversed(self._recent)))
        known.reverse()
        return known

    def _hear(self, events: Sequence[Event]) -> None:
        if self._store.is_shared:
            # Other processes' events may lie between ours: the store tells them in order.
            self._poke.set()
            return
        self._remember(events)

    def _remember(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind in _FORGETTING:
                # What is remembered may hold what the store holds no more.
                self._recent.clear()
                self._complete_after = event.seq - 1
            if len(self._recent) == self._recent.maxlen:
                self._complete_after = self._recent[0].seq
            self._recent.append(event)
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _poll(self) -> None:
        after = self._complete_after
        while True:
            self._poke.clear()
            try:
                page = await self.page(Interest(), after, self._page)
            except PaddockError as error:
                _log.warning("events could not be read", extra={"error": error.message})
                page = ()
            if page:
                after = page[-1].seq
                self._remember(page)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._poke.wait()
