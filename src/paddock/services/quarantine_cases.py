"""What is known of each sandbox that was set aside, as it is kept: written with the mark."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from paddock.domain.records import SandboxRecord
from paddock.ports.store import ANY_TEAM, Transaction

_NAME = "quarantine."


@dataclass(frozen=True, slots=True)
class Case:
    """A sandbox that was set aside, and the evidence."""

    team_id: str
    sandbox_id: str
    name: str
    by: str
    at: float
    why: str
    before: str
    """The state that it was in."""
    tasks: tuple[str, ...] = ()
    """That were at work in it, and wait now."""
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Mapping[str, Any], ...] = ()
    egress: tuple[Mapping[str, Any], ...] = ()
    snapshot: str = ""
    missing: tuple[str, ...] = ()
    """What could not be kept, and why."""
    is_still: bool = False
    """It was made to stand still, and its disk was kept. An admin may have woken it since."""


def key_of(team_id: str, sandbox_id: str) -> str:
    return f"{_NAME}{team_id}.{sandbox_id}"


def find(tx: Transaction, team_id: str, sandbox_id: str) -> Case | None:
    found = tx.values.get(key_of(team_id, sandbox_id))
    return None if found is None else msgspec.convert(found, Case)


def find_all(tx: Transaction, team_id: str) -> list[Case]:
    """Of every team where none is named; without those whose sandbox is gone."""
    found = tx.values.all(f"{_NAME}{team_id}." if team_id else _NAME)
    cases = [msgspec.convert(each, Case) for each in found.values()]
    return [case for case in cases if _is_there(tx, case)]


def put(tx: Transaction, case: Case) -> None:
    tx.values.put(key_of(case.team_id, case.sandbox_id), asdict(case))


def replace_known(tx: Transaction, case: Case) -> None:
    """Unless it was forgotten meanwhile."""
    if tx.values.get(key_of(case.team_id, case.sandbox_id)) is not None:
        put(tx, case)


def forget(tx: Transaction, sandbox: SandboxRecord) -> None:
    tx.values.remove(key_of(sandbox.team_id, sandbox.id))


def forget_leftovers(tx: Transaction) -> None:
    """Those whose sandbox is not even on record any more."""
    for name in tx.values.all(_NAME):
        if tx.sandboxes.get(ANY_TEAM, name.rpartition(".")[2]) is None:
            tx.values.remove(name)


def remove(tx: Transaction, case: Case) -> None:
    tx.values.remove(key_of(case.team_id, case.sandbox_id))


def open_for_copy(tx: Transaction, made: SandboxRecord) -> None:
    """For a copy of what was set aside, if it is one. Nothing is done to it: the admin who has it
    made wants to look into it, and nobody else gets in until it is cleared."""
    mark = made.quarantine
    if mark is None:
        return
    case = Case(
        team_id=made.team_id,
        sandbox_id=made.id,
        name=made.name,
        by=mark.by,
        at=made.created_at,
        why=mark.why,
        before=made.state,
        is_still=True,
        snapshot="" if made.parent_id else made.snapshot_id,
    )
    put(tx, case)


def _is_there(tx: Transaction, case: Case) -> bool:
    sandbox = tx.sandboxes.get(case.team_id, case.sandbox_id)
    return sandbox is not None and not sandbox.is_gone
