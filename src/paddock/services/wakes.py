"""Who waits for news of something, by its id."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Wakes:
    """One that waits for each; being woken twice is as good as once."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Event] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[asyncio.Event]:
        """Set from the start, so that what was news before is looked at first."""
        news = self._waiting[name] = asyncio.Event()
        news.set()
        try:
            yield news
        finally:
            if self._waiting.get(name) is news:  # and not another's, who came after
                del self._waiting[name]

    def wake_all(self) -> None:
        for news in self._waiting.values():
            news.set()

    def wake(self, name: str) -> None:
        if (news := self._waiting.get(name)) is not None:
            news.set()
