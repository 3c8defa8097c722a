"""Where questions to people and their answers are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paddock.domain.approval import Approval, Kind, State
from paddock.ports.paging import Page


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """Which ones; empty means all."""

    states: frozenset[State] = frozenset()
    kind: Kind | None = None
    sandbox_id: str = ""


class Approvals(Protocol):
    """Newest first. A team sees its own; another's does not exist."""

    def add(self, approval: Approval) -> None: ...

    def get(self, team_id: str, approval_id: str) -> Approval | None: ...

    def list(self, team_id: str, wanted: ApprovalFilter, page: Page) -> Sequence[Approval]: ...

    def latest(self, sandbox_id: str, kind: Kind, what: str) -> Approval | None:
        """The last time that this was asked in the sandbox."""
        ...

    def of_task(
        self, sandbox_id: str, task_id: str, kind: Kind = Kind.QUESTION
    ) -> Sequence[Approval]:
        """What was asked about the task, or by its agent; newest first."""
        ...

    def pending(self, limit: int) -> Sequence[Approval]:
        """Every team's, those that expire first."""
        ...

    def count_pending(self, sandbox_id: str) -> int: ...

    def count_since(self, sandbox_id: str, since: float) -> int:
        """How many were asked in the sandbox."""
        ...

    def replace(self, approval: Approval) -> None:
        """NotFound when it is not there."""
        ...

    def prune(self, before: float, limit: int) -> int:
        """Forget those that were asked before and are not pending; how many there were."""
        ...

    def forget(self, sandbox_id: str) -> None:
        """All of a sandbox."""
        ...
