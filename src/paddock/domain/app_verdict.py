"""Whether an app is well: by its build, by what its port answers, and by its workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.domain.app_health import OUTCOME, HealthWish
from paddock.domain.task_faults import Fault
from paddock.domain.task_rounds import Checked, CheckState, Outcome

ABSENT = "absent"
"""In place of a state: the sandbox supervises nothing of that name."""
RUNNING = "running"
_ASKS_WHO = (401, 403)


def answers_well(status: int) -> bool:
    """Somebody is there, and has what was asked for, or only asks who wants it."""
    return 200 <= status < 400 or status in _ASKS_WHO


def asset_fails(status: int) -> bool:
    """It is there and cannot be made. One that an app does not have is none of its errors."""
    return status >= 500


@dataclass(frozen=True, slots=True)
class WebSeen:
    """What a port answered in the end."""

    port: int
    path: str = "/"
    status: int | None = None
    """None where nobody answered."""
    error: str = ""
    """Why it is not well; also of an asset that cannot be made."""

    @property
    def is_well(self) -> bool:
        return self.status is not None and answers_well(self.status) and not self.error


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A supervised process in the end."""

    name: str
    state: str
    exit_code: int | None = None
    """Of the last time that it ended."""

    @property
    def runs(self) -> bool:
        return self.state == RUNNING


@dataclass(frozen=True, slots=True)
class AppHealth:
    """What was found of an app."""

    build: CheckState | None = None
    """None where no check is called the build. What is unknown has neither passed nor failed."""
    web: WebSeen | None = None
    workers: tuple[WorkerSeen, ...] = ()
    restarted: tuple[str, ...] = ()
    """Processes that were started anew first."""
    changed: tuple[str, ...] = ()
    """The files that this was for; none where a process had been given up."""
    missing: tuple[str, ...] = ()
    """Processes that were to be started anew, and are not there."""
    unstarted: tuple[str, ...] = ()
    """Of those that are there and were not started anew: which, and why, in words."""
    seconds: float = 0.0

    @property
    def preview_ok(self) -> bool | None:
        """None, and never False, of an app without a web part."""
        return self.web.is_well if self.web is not None else None

    @property
    def is_well(self) -> bool:
        is_up = bool(self.preview_ok) or any(each.runs for each in self.workers)
        return is_up and self.build is not CheckState.FAILED

    @property
    def outcome(self) -> Outcome:
        return Outcome(OUTCOME, CheckState.PASSED if self.is_well else CheckState.FAILED)

    @property
    def fault(self) -> Fault | None:
        """No agent can make a process that its sandbox does not know."""
        if self.is_well:
            return None
        is_lost = self.web is None and all(each.state == ABSENT for each in self.workers)
        return Fault.COMMAND if is_lost else Fault.CODE

    @property
    def errors(self) -> tuple[str, ...]:
        """All that is not well, in words; also of an app that is well as a whole."""
        said = []
        if self.build is CheckState.FAILED:
            said.append("its build fails")
        if self.web is not None and not self.web.is_well:
            said.append(f"port {self.web.port}: {self.web.error or 'no answer'}")
        said += [_complaint(each) for each in self.workers if not each.runs]
        said += [f"there is no process {name} to start anew" for name in self.missing]
        said += self.unstarted
        return tuple(said)

    def told(self) -> dict[str, Any]:
        """As the event has it."""
        data: dict[str, Any] = {"healthy": self.is_well, "errors": list(self.errors)}
        if self.build is not None:
            data["build"] = self.build
        if self.web is not None:
            data |= {"preview_ok": self.preview_ok, "port": self.web.port}
        if self.workers:
            data["workers"] = {each.name: each.state for each in self.workers}
        if self.restarted:
            data |= {"restarted": list(self.restarted), "changed": list(self.changed)}
        return data


def _complaint(worker: WorkerSeen) -> str:
    if worker.state == ABSENT:
        return f"there is no process {worker.name}: the sandbox supervises nothing of that name"
    code = "" if worker.exit_code is None else f"; it last ended with {worker.exit_code}"
    return f"process {worker.name} is {worker.state}{code}"


def complaint(health: AppHealth) -> str:
    """What an agent is told of an app that is not well."""
    return f"The app is not healthy: {'; '.join(health.errors)}."


def health_again(kept: Mapping[str, Any]) -> AppHealth:
    """As it was kept in the journal."""
    web, build = kept["web"], kept["build"]
    return AppHealth(
        build=CheckState(build) if build else None,
        web=WebSeen(**web) if web else None,
        workers=tuple(WorkerSeen(**each) for each in kept["workers"]),
        restarted=tuple(kept["restarted"]),
        changed=tuple(kept["changed"]),
        missing=tuple(kept["missing"]),
        unstarted=tuple(kept.get("unstarted", ())),
        seconds=kept["seconds"],
    )


def build_of(wish: HealthWish, found: Sequence[Checked]) -> CheckState | None:
    """By the checks of the round; one that was not run is unknown."""
    if not wish.build:
        return None
    states = {each.name: each.state for each in found}
    return states.get(wish.build, CheckState.UNKNOWN)
