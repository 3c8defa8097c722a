"""The state of everything on one page: servers, tasks, strays, quarantine, cost, providers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.team import Principal, Scope, Team
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Page, SandboxFilter, Store, Transaction
from paddock.services.audit_guard import AuditGuard, ChainState
from paddock.services.beats import REMEMBERED_S, Beat, beats, forget_silent
from paddock.services.fallback import Fallback
from paddock.services.health import Condition, ProviderHealth
from paddock.services.quarantine import Quarantines
from paddock.services.quarantine_cases import Case
from paddock.services.reconciler import TAKEN_IN
from paddock.services.spend_days import spent_lately
from paddock.services.system import operating_team
from paddock.services.task_workers import LASTS_S

_SILENT_S = 3 * LASTS_S
_STRAY_AFTER_S = 600.0
_LOST_AFTER_S = 60.0
_MOST = 500
_MOST_PAGES = 20
_SHOWN = 50
_TOLD_BY_STATE = (SandboxState.DELETING, SandboxState.FAILED)


@dataclass(frozen=True, slots=True)
class Server:
    """A process, and whether it still says something."""

    beat: Beat
    is_alive: bool


@dataclass(frozen=True, slots=True)
class Stray:
    """Something that nobody looks after as they should."""

    id: str
    kind: str
    """`deleting`: its provider cannot remove it; `taken_in`: found without a record; `failed`; or
    `unattended`: a task whose worker is silent and that nobody has taken up; `held_up`: one that
    stands still for long, because there is no room or somebody is away."""
    since: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Spend:
    """What models cost a team."""

    team_id: str
    team: str
    today_usd: float
    month_usd: float


@dataclass(frozen=True, slots=True)
class Diversion:
    """Sandboxes are made on another provider than the one in use, which is away."""

    provider: str
    fallback: str
    since: float
    why: str


@dataclass(frozen=True, slots=True)
class Status:
    """The page."""

    at: float
    servers: Sequence[Server]
    states: Mapping[str, int]
    phases: Mapping[str, int]
    oldest_waiting: TaskRecord | None
    strays: Sequence[Stray]
    set_aside: Sequence[Case]
    spend: Sequence[Spend]
    providers: Sequence[Condition]
    diversion: Diversion | None
    """As far as the process knows that was asked."""
    audit: ChainState | None
    """For operators."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What one look at the store gives."""

    servers: Sequence[Server]
    states: Mapping[str, int]
    at_work: Sequence[TaskRecord]
    oldest: TaskRecord | None
    strays: Sequence[Stray]
    spend: Sequence[Spend]


class StatusPage:
    """A team sees what is its own; the team that runs the installation sees everything."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        health: ProviderHealth,
        quarantines: Quarantines,
        *,
        fallback: Fallback,
        audit: AuditGuard,
    ) -> None:
        self._store = store
        self._clock = clock
        self._health = health
        self._quarantines = quarantines
        self._fallback = fallback
        self._audit = audit

    async def look(self, principal: Principal) -> Status:
        principal.require(Scope.TASKS_READ)
        principal.require(Scope.SANDBOXES_READ)
        now = self._clock.wall()
        team_id = ANY_TEAM if principal.operator else principal.team_id
        if principal.operator:
            await self._store.write(lambda tx: forget_silent(tx, now - REMEMBERED_S))
        read = await self._store.read(lambda tx: _read(tx, team_id, now))
        providers = await self._health.all()
        of_tasks = [*_held_up(read.at_work), *_unattended(read.at_work, now)]
        strays = [*of_tasks, *read.strays, *await self._taken_in(team_id)]
        phases = Counter(str(task.phase) for task in read.at_work if task.phase)
        return Status(
            at=now,
            servers=read.servers,
            states={state: read.states.get(state, 0) for state in TaskState},
            phases=dict(sorted(phases.items())),
            oldest_waiting=read.oldest,
            strays=strays[:_SHOWN],
            set_aside=await self._quarantines.cases(team_id),
            spend=read.spend,
            providers=providers,
            diversion=self._diversion(providers, now),
            audit=self._audit.state if principal.operator else None,
        )

    def _diversion(self, providers: Sequence[Condition], now: float) -> Diversion | None:
        """Not any more when the next creation will find the provider back."""
        usable = {each.name for each in providers if each.usable}
        away = self._fallback.outage
        if away is None or (now >= away.ask_at and away.provider in usable):
            return None
        return Diversion(away.provider, self._fallback.name, away.since, away.error.message)

    async def _taken_in(self, team_id: str) -> list[Stray]:
        """They may be in any state, so that all of the team that they are given to are gone
        through: page by page, so that nobody waits for it, and so many at most."""
        operators = await self._store.read(operating_team)
        if operators is None or team_id not in (ANY_TEAM, operators.id):
            return []
        found: list[Stray] = []
        after = ""
        for _ in range(_MOST_PAGES):
            page = await self._store.read(partial(_page, operators.id, after))
            found += [stray for box in page if (stray := _taken_in(box)) is not None]
            if len(page) < _MOST or len(found) >= _SHOWN:
                break
            after = page[-1].id
        return found


def _read(tx: Transaction, team_id: str, now: float) -> _Read:
    at_work = tx.tasks.at_work(team_id, _MOST)
    teams = tx.teams.list(Page(_MOST)) if team_id == ANY_TEAM else _one(tx.teams.get(team_id))
    seen = [Server(beat, now - beat.at <= _SILENT_S) for beat in beats(tx)]
    return _Read(
        servers=seen if team_id == ANY_TEAM else (),
        states=tx.tasks.counts(team_id),
        at_work=at_work,
        oldest=tx.tasks.oldest_waiting(team_id),
        strays=_unfinished(tx, team_id, now),
        spend=[_spend(tx, team, now) for team in teams],
    )


def _one(team: Team | None) -> list[Team]:
    return [] if team is None else [team]


def _spend(tx: Transaction, team: Team, now: float) -> Spend:
    today, month = spent_lately(tx, team.id, now)
    return Spend(team.id, team.name, round(today, 6), round(month, 6))


def _unfinished(tx: Transaction, team_id: str, now: float) -> list[Stray]:
    """By state, which has an index: however many others there are, these are found."""
    found: list[Stray] = []
    for state in _TOLD_BY_STATE:
        boxes = tx.sandboxes.list(team_id, SandboxFilter(states=frozenset({state})), Page(_MOST))
        late = (box for box in boxes if now - box.changed_at >= _STRAY_AFTER_S)
        found += [Stray(box.id, str(state), box.changed_at, box.detail) for box in late]
    return found


def _page(team_id: str, after: str, tx: Transaction) -> Sequence[SandboxRecord]:
    return tx.sandboxes.list(team_id, SandboxFilter(), Page(_MOST, after))


def _taken_in(box: SandboxRecord) -> Stray | None:
    if box.detail != TAKEN_IN or box.state in _TOLD_BY_STATE:
        return None
    return Stray(box.id, "taken_in", box.changed_at, box.detail)


def _held_up(at_work: Sequence[TaskRecord]) -> list[Stray]:
    """Those of whom people were told."""
    return [
        Stray(task.id, "held_up", task.standing.since, task.detail)
        for task in at_work
        if task.standing is not None and task.standing.is_told
    ]


def _unattended(at_work: Sequence[TaskRecord], now: float) -> list[Stray]:
    """Their lease ended, and a worker that looked would have taken them up long since."""
    late = (task for task in at_work if 0 < task.lease.until < now - _LOST_AFTER_S)
    return [
        Stray(task.id, "unattended", task.lease.until, f"it is {task.state}, and its lease ended")
        for task in late
    ]
