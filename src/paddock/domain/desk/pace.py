"""How often an agent may speak at its desk: each time something is written for everybody."""

from dataclasses import dataclass

from paddock.domain.errors import LimitExceeded

PER_SECOND, BURST = 5.0, 20.0
MOST_TOLD = 200
"""Verdicts of one run that are told as events."""


@dataclass(slots=True)
class Pace:
    """Of one run: a bucket that fills up again."""

    left: float = BURST
    at: float | None = None

    def take(self, now: float) -> None:
        """LimitExceeded for who was here too often just now; `now` is monotonic."""
        passed = 0.0 if self.at is None else max(0.0, now - self.at)
        self.left, self.at = min(BURST, self.left + passed * PER_SECOND), now
        if self.left < 1:
            raise LimitExceeded(
                f"this run speaks at its desk more often than {PER_SECOND:g} times a second",
                remediation="wait a second, then try again; say only what somebody needs to know",
                retry_after_s=(1 - self.left) / PER_SECOND,
            )
        self.left -= 1


@dataclass(frozen=True, slots=True)
class Told:
    """Verdicts that were told of, and in which run."""

    run: int = 0
    count: int = 0

    def once_more(self, run: int) -> "Told":
        count = self.count if run == self.run else 0
        if count >= MOST_TOLD:
            raise LimitExceeded(
                f"{MOST_TOLD} verdicts were told in this run, which is the most",
                remediation="go on without: the task's own checks run in any case",
            )
        return Told(run, count + 1)
