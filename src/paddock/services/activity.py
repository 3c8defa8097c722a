"""When work was last seen in a sandbox, and what is at work in it right now."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from paddock.ports.clock import Clock

JUST_NOW_S = 15.0
"""What is on record as active so lately may be at work in another process: of what works, each
writes that down at every look of its reaper, three times in this."""


class Activity:
    """Kept in memory and written down from time to time: a lost minute stops nothing early,
    because a restarted control plane counts from its own start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.wall()
        self._seen: dict[str, float] = {}
        self._unwritten: set[str] = set()
        self._working: dict[str, Counter[str]] = {}

    def touch(self, sandbox_id: str) -> None:
        self._seen[sandbox_id] = self._clock.wall()
        self._unwritten.add(sandbox_id)

    @contextmanager
    def working(self, sandbox_id: str, what: str) -> Iterator[None]:
        """While this is open, `what` (a command, a terminal, a preview) keeps it from idling."""
        doing = self._working.setdefault(sandbox_id, Counter())
        doing[what] += 1
        self.touch(sandbox_id)
        try:
            yield
        finally:
            doing[what] -= 1
            if not +doing:
                self._working.pop(sandbox_id, None)
            self.touch(sandbox_id)

    def doing(self, sandbox_id: str) -> Mapping[str, int]:
        """What works in it, and how many of each."""
        return dict(+self._working.get(sandbox_id, Counter()))

    def seen(self, sandbox_id: str, recorded: float) -> float:
        """When work was last seen, given what is on record; never before this process was there
        to see it."""
        return max(self.known(sandbox_id, recorded), self._since)

    def known(self, sandbox_id: str, recorded: float) -> float:
        """The same for who acts after days: what was not seen for want of a process is too short
        to matter, and starts of the server say nothing about a sandbox."""
        if sandbox_id in self._working:
            return self._clock.wall()
        return max(self._seen.get(sandbox_id, 0.0), recorded)

    def take_unwritten(self) -> dict[str, float]:
        """What has happened since this was last asked, to be written down: where something is at
        work, that is now, because other processes see only what is on record."""
        for sandbox_id in self._working:
            self.touch(sandbox_id)
        taken = {sandbox_id: self._seen[sandbox_id] for sandbox_id in self._unwritten}
        self._unwritten.clear()
        return taken

    def forget(self, sandbox_id: str) -> None:
        self._seen.pop(sandbox_id, None)
        self._unwritten.discard(sandbox_id)
