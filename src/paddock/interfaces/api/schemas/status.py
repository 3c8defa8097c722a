"""Shapes of the page that shows everything, and of a sandbox that was asked how it is."""

from datetime import datetime

from pydantic import Field

from paddock.domain.sandbox import SandboxState
from paddock.interfaces.api.schemas.audit import BreakShape, HeadShape, show_break, show_head
from paddock.interfaces.api.schemas.common import Shape, at, moment
from paddock.interfaces.api.schemas.quarantine import CaseSummary, summarize_case
from paddock.services.audit_guard import ChainState
from paddock.services.checkups import Checkup
from paddock.services.status import Diversion, Status


class ServerShape(Shape):
    """A process that moves tasks on."""

    name: str
    host: str
    pid: int
    version: str
    since: datetime
    beat_at: datetime = Field(description="when it last said that it lives")
    alive: bool
    tasks: int = Field(description="that it is at")
    most: int


class StrayShape(Shape):
    """Something that nobody looks after as they should."""

    id: str
    kind: str = Field(description="deleting, failed, taken_in, unattended or held_up")
    since: datetime
    detail: str


class SpendShape(Shape):
    """What models cost a team, by UTC."""

    team_id: str
    team: str
    today_usd: float
    month_usd: float


class WaitingShape(Shape):
    """The task that waits the longest for its turn."""

    id: str
    since: datetime


class UsableShape(Shape):
    """A provider as it was when it was last asked."""

    name: str
    usable: bool
    latency_s: float | None
    last_error: str | None


class DiversionShape(Shape):
    """The provider in use is away, and sandboxes are made on its fallback."""

    provider: str
    fallback: str
    since: datetime
    why: str


class ChainShape(Shape):
    """Whether the audit log is as it was written, as far as this server has looked."""

    holds: bool
    breaks: int
    first_break: BreakShape | None
    head: HeadShape
    looked_at: datetime = Field(description="when its end was looked at")
    whole_at: datetime | None = Field(
        description="when all of it was; null while that is under way"
    )


class StatusShape(Shape):
    """The state of everything that is the team's; for operators, of everything."""

    at: datetime
    servers: list[ServerShape] = Field(description="for operators only")
    tasks_by_state: dict[str, int]
    tasks_by_phase: dict[str, int]
    oldest_waiting: WaitingShape | None
    strays: list[StrayShape]
    quarantined: list[CaseSummary]
    spend: list[SpendShape]
    providers: list[UsableShape]
    diversion: DiversionShape | None = Field(description="as far as the server knows that answers")
    audit: ChainShape | None = Field(description="for operators only")


class CheckupShape(Shape):
    """How a sandbox is."""

    id: str
    name: str
    state: SandboxState
    healthy: bool
    latency_s: float | None = Field(description="there and back; null when it was not asked")
    detail: str
    asked_at: datetime | None = None


def show_status(status: Status) -> StatusShape:
    oldest = status.oldest_waiting
    return StatusShape(
        at=at(status.at),
        servers=[
            ServerShape(
                name=each.beat.name,
                host=each.beat.host,
                pid=each.beat.pid,
                version=each.beat.version,
                since=at(each.beat.since),
                beat_at=at(each.beat.at),
                alive=each.is_alive,
                tasks=each.beat.tasks,
                most=each.beat.most,
            )
            for each in status.servers
        ],
        tasks_by_state=dict(status.states),
        tasks_by_phase=dict(status.phases),
        oldest_waiting=WaitingShape(id=oldest.id, since=at(oldest.created_at)) if oldest else None,
        strays=[
            StrayShape(id=s.id, kind=s.kind, since=at(s.since), detail=s.detail)
            for s in status.strays
        ],
        quarantined=[summarize_case(case) for case in status.set_aside],
        spend=_spend(status),
        providers=_providers(status),
        diversion=_diversion(status.diversion) if status.diversion else None,
        audit=_chain(status.audit) if status.audit else None,
    )


def _spend(status: Status) -> list[SpendShape]:
    return [
        SpendShape(team_id=s.team_id, team=s.team, today_usd=s.today_usd, month_usd=s.month_usd)
        for s in status.spend
    ]


def _providers(status: Status) -> list[UsableShape]:
    return [
        UsableShape(
            name=each.name,
            usable=each.usable,
            latency_s=each.latency_s,
            last_error=each.last_fault.message if each.last_fault else None,
        )
        for each in status.providers
    ]


def _diversion(found: Diversion) -> DiversionShape:
    return DiversionShape(
        provider=found.provider,
        fallback=found.fallback,
        since=at(found.since),
        why=found.why,
    )


def _chain(state: ChainState) -> ChainShape:
    return ChainShape(
        holds=state.first is None,
        breaks=state.breaks,
        first_break=show_break(state.first),
        head=show_head(state.head),
        looked_at=at(state.at),
        whole_at=at(state.whole_at) if state.whole_at else None,
    )


def show_checkup(found: Checkup, asked_at: float | None = None) -> CheckupShape:
    return CheckupShape(
        id=found.sandbox_id,
        name=found.name,
        state=found.state,
        healthy=found.is_healthy,
        latency_s=found.latency_s,
        detail=found.detail,
        asked_at=moment(asked_at),
    )
