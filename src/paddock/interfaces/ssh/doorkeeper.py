"""Who may come as far as the door: how many strangers at a time, and how often they may guess."""

from collections import Counter
from dataclasses import dataclass

from paddock.interfaces.ssh.config import GatewayLimits
from paddock.ports.clock import Clock

_MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _Guesses:
    count: int
    since: float


class Doorkeeper:
    """Counts; decides nothing about who somebody is."""

    def __init__(self, limits: GatewayLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._strangers: Counter[str] = Counter()
        self._known = 0
        self._guesses: dict[str, _Guesses] = {}

    def lets_in(self, peer: str) -> bool:
        """Whether a connection from there is taken at all."""
        limits = self._limits
        return (
            self._known + self._strangers.total() < limits.connections
            and self._strangers.total() < limits.strangers
            and self._strangers[peer] < limits.strangers_of_one
        )

    def wait_s(self, peer: str) -> float:
        """How long nobody from there may say who they are."""
        guesses = self._guesses.get(peer)
        if guesses is None or guesses.count < self._limits.failures:
            return 0.0
        return guesses.since + self._limits.forget_failures_s - self._clock.now()

    def came(self, peer: str) -> None:
        self._strangers[peer] += 1

    def became_known(self, peer: str) -> None:
        self._leave_strangers(peer)
        self._known += 1
        self._guesses.pop(peer, None)

    def went(self, peer: str, *, known: bool) -> None:
        if known:
            self._known -= 1
        else:
            self._leave_strangers(peer)

    def guessed_wrong(self, peer: str) -> None:
        now = self._clock.now()
        if len(self._guesses) >= _MOST_REMEMBERED:
            self._guesses.clear()
        guesses = self._guesses.setdefault(peer, _Guesses(0, now))
        if now - guesses.since >= self._limits.forget_failures_s:
            guesses.count, guesses.since = 0, now
        guesses.count += 1

    def _leave_strangers(self, peer: str) -> None:
        self._strangers[peer] -= 1
        if self._strangers[peer] <= 0:
            del self._strangers[peer]
