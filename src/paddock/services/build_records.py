"""Builds of teams in the store: one value for each name."""

from collections.abc import Mapping

import msgspec

from paddock.domain.build import Build, BuildState, Family
from paddock.domain.errors import Conflict, LimitExceeded
from paddock.ports.store import Transaction

DEFAULT_TAG = "default"

_MOST_UNREADY = 20
"""Failed and waiting builds that are kept of one name."""
_MOST_NAMES = 1000
"""Templates of a team."""


def read_family(tx: Transaction, team_id: str, name: str) -> Family:
    found = tx.values.get(family_key(team_id, name))
    return Family(name) if found is None else msgspec.convert(found, Family)


def without_oldest(builds: Mapping[str, Build]) -> Mapping[str, Build]:
    """Drop the oldest builds that are not ready."""
    unready = [each for each in builds.values() if each.state is not BuildState.READY]
    oldest = sorted(unready, key=lambda each: each.created_at)[:-_MOST_UNREADY]
    dropped = {each.id for each in oldest}
    return {key: each for key, each in builds.items() if key not in dropped}


def check_free(tx: Transaction, team_id: str, name: str) -> None:
    """One name means one thing; what was built under it before may be built again."""
    names = tx.values.all(family_key(team_id, ""))
    if family_key(team_id, name) not in names and len(names) >= _MOST_NAMES:
        raise LimitExceeded(
            f"your team has {len(names)} templates; it may have {_MOST_NAMES}",
            remediation="delete templates that you do not need",
        )
    if not read_family(tx, team_id, name).builds and tx.snapshots.get(team_id, name) is not None:
        raise Conflict(
            f"{name} is the name of a snapshot",
            remediation="choose another, or delete the snapshot first",
        )


def write_family(tx: Transaction, team_id: str, family: Family) -> None:
    tx.values.put(family_key(team_id, family.name), msgspec.to_builtins(family))


def family_key(team_id: str, name: str) -> str:
    return f"build.{team_id}.{name}"


def ready_build(tx: Transaction, team_id: str, template: str) -> Build | None:
    """The build that NAME or NAME:TAG means; None where the team has none of it."""
    name, _, tag = template.partition(":")
    family = read_family(tx, team_id, name)
    return family.builds.get(family.tags.get(tag or DEFAULT_TAG, ""))
