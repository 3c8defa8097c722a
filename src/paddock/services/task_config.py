"""What can be set about tasks."""

from dataclasses import dataclass, field

from paddock.domain.guardian import GuardianConfig
from paddock.domain.quarantine import OddnessConfig
from paddock.domain.standing import ALERT_AFTER_S
from paddock.domain.task_queue import TaskLimits
from paddock.domain.vitals import Thresholds
from paddock.ports.reviewer import ReviewerConfig


@dataclass(frozen=True, slots=True)
class TasksConfig:
    """Settings under `[tasks]`."""

    at_once_per_team: int = 10
    """How many tasks of one team are at work at the same time; the others wait for their turn."""
    at_once_per_provider: int = 50
    at_once: int = 64
    """How many one server process moves on."""
    replace_lost: bool = True
    """A sandbox that was made for a task and is lost is replaced, and the task goes on: as it was
    when the last snapshot was taken, or from its beginning. Off fails the task instead."""
    alert_after_s: float = ALERT_AFTER_S
    """How long a task stands still, because there is no room or somebody is away, until it is told
    as `task.held_up` and shown by `paddock status`."""
    health: Thresholds = field(default_factory=Thresholds)
    guardian: GuardianConfig = field(default_factory=GuardianConfig)
    odd: OddnessConfig = field(default_factory=OddnessConfig)
    reviewer: ReviewerConfig = field(default_factory=ReviewerConfig)

    @property
    def limits(self) -> TaskLimits:
        return TaskLimits(self.at_once_per_team, self.at_once_per_provider)
