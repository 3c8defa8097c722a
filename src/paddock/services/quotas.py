"""Quotas of teams: enforced before anything is created, shown to members, set by operators."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import QuotaExceeded
from paddock.domain.event import Event, EventKind
from paddock.domain.quota import (
    MIB,
    Limits,
    QuotaName,
    Usage,
    check_limits,
    check_room,
)
from paddock.domain.team import Principal, Scope, Team
from paddock.ports.clock import Clock
from paddock.ports.quotas import INSTALLATION
from paddock.ports.store import Store, Transaction
from paddock.services.access import Access

_ACTOR = "paddock/quotas"


@dataclass(frozen=True, slots=True)
class QuotaState:
    """One limit that applies to a team, and its usage."""

    name: QuotaName
    most: float | None
    used: float | None
    """None for limits of single sandboxes and tasks."""
    is_own: bool
    """Whether it is set for this team. If not, the installation's applies."""


def check_quota(tx: Transaction, team_id: str, wanted: Usage) -> None:
    """Raise QuotaExceeded or LimitExceeded if a new row would exceed a quota of the team.

    Call this in the transaction that adds the row. Only one write transaction runs at a time, in
    all processes. So of two requests for the last place exactly one succeeds.
    """
    limits = tx.quotas.in_force(team_id)
    if all(limits.get(name) is None for name in wanted.wanted):
        return
    check_room(_name_of(tx, team_id), limits, tx.quotas.usage(team_id), wanted)


def has_event_room(tx: Transaction, team_id: str, subject: str) -> bool:
    """Whether more events of programs in a sandbox, or of a task's agent, may be stored."""
    return _full(tx, tx.quotas.in_force(team_id), team_id, subject) is None


def check_event_room(tx: Transaction, team_id: str, subject: str, name: str) -> None:
    """Raise QuotaExceeded if no more events may be stored."""
    if quota := _full(tx, tx.quotas.in_force(team_id), team_id, subject):
        whose = name if quota is QuotaName.SANDBOX_EVENTS_MIB else _name_of(tx, team_id)
        raise QuotaExceeded(
            f"{whose} has used up its quota {quota}: no more events are stored",
            remediation="wait until old events are removed (`retention.events_s`), or ask an "
            "operator to raise the limit with `paddock team quota set`",
        )


def append_within(tx: Transaction, events: Sequence[Event]) -> Sequence[Event]:
    """Append events that programs in a sandbox have caused, as far as the quota has room.

    The event that uses up the quota is followed by `quota.reached`. Later events are dropped until
    older events are removed.
    """
    limits = {team: tx.quotas.in_force(team) for team in {event.team_id for event in events}}
    places = sorted({(event.team_id, event.subject) for event in events})
    room = [
        (team, subject) for team, subject in places if not _full(tx, limits[team], team, subject)
    ]
    stored = tx.events.append([e for e in events if (e.team_id, e.subject) in room])
    for team, subject in room:
        if quota := _full(tx, limits[team], team, subject):
            at = max(event.at for event in events)
            data = {"quota": quota, "most": limits[team][quota]}
            tx.events.append([Event(team, EventKind.QUOTA_REACHED, subject, at, data, _ACTOR)])
    return stored


def _full(tx: Transaction, limits: Limits, team_id: str, subject: str) -> QuotaName | None:
    """Return the quota of stored events that is used up, if any."""
    for name, whose in ((QuotaName.SANDBOX_EVENTS_MIB, subject), (QuotaName.EVENTS_MIB, "")):
        most = limits.get(name)
        if most is not None and tx.quotas.stored(team_id, whose) >= most * MIB:
            return name
    return None


def _name_of(tx: Transaction, team_id: str) -> str:
    team = tx.teams.get(team_id)
    return team.name if team is not None else team_id


class Quotas:
    """Shows quotas to members, and lets operators set them."""

    def __init__(self, store: Store, clock: Clock, access: Access) -> None:
        self._store = store
        self._clock = clock
        self._access = access

    async def set_defaults(self, limits: Limits) -> None:
        """Store the limits of the installation's settings, at each start."""

        def write(tx: Transaction) -> None:
            tx.quotas.reset(INSTALLATION, frozenset(QuotaName))
            tx.quotas.put(INSTALLATION, check_limits(limits))

        await self._store.write(write)

    async def show(self, principal: Principal, team: str) -> tuple[Team, Sequence[QuotaState]]:
        """Raise NotFound for another team, unless the caller manages teams."""
        found = await self._access.team(principal, team)
        return found, await self._store.read(lambda tx: _states(tx, found.id))

    async def change(
        self, principal: Principal, team: str, limits: Limits, reset: Collection[QuotaName] = ()
    ) -> tuple[Team, Sequence[QuotaState]]:
        """Set or reset limits. Usage above a lowered limit stays, but cannot grow."""
        found = await self._access.team(principal, team)
        principal.require(Scope.TEAMS_MANAGE)
        check_limits(limits)
        now = self._clock.wall()

        def write(tx: Transaction) -> Sequence[QuotaState]:
            before = tx.quotas.limits(found.id)
            tx.quotas.reset(found.id, frozenset(reset))
            tx.quotas.put(found.id, limits)
            detail = {"before": dict(before), "after": dict(tx.quotas.limits(found.id))}
            action, actor = "quota.change", principal.actor
            tx.audit.append([AuditEntry(found.id, actor, action, found.id, now, detail)])
            return _states(tx, found.id)

        return found, await self._store.write(write)


def _states(tx: Transaction, team_id: str) -> Sequence[QuotaState]:
    limits, own = tx.quotas.in_force(team_id), tx.quotas.limits(team_id)
    used = tx.quotas.usage(team_id)
    return [
        QuotaState(
            name,
            limits.get(name),
            None if name is QuotaName.SANDBOX_EVENTS_MIB else used.of(name),
            is_own=name in own,
        )
        for name in QuotaName
    ]
