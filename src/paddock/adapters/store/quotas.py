"""Quotas in the database, and the sums that count against them."""

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    Connection,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    text,
    union_all,
)

from paddock.adapters.store.quota_schema import build_file, team_image
from paddock.adapters.store.quota_schema import quota as table
from paddock.adapters.store.quota_schema import stored as total
from paddock.adapters.store.schema import NOT_DELETED, sandbox, snapshot, volume
from paddock.adapters.store.task_schema import NOT_OVER, task
from paddock.domain.quota import MIB, Limits, QuotaName, Usage
from paddock.domain.sandbox import SandboxState
from paddock.domain.volume import DEFAULT_MIB
from paddock.ports.quotas import INSTALLATION

ROW = 128
"""Approximate overhead of a row in bytes: many small rows fill a disk, too."""
_SMALLEST_SNAPSHOT = MIB
"""The size of a snapshot that is being taken, in bytes: its real size is not known yet."""
_ADD = text(
    "INSERT INTO stored (team_id, subject, bytes) VALUES (:team_id, :subject, :bytes)"
    " ON CONFLICT (team_id, subject) DO UPDATE SET bytes = stored.bytes + excluded.bytes"
)
_LIMITS = select(table.c.team_id, table.c.name, table.c.most).where(
    table.c.team_id.in_((INSTALLATION, bindparam("team_id")))
)
_STORED = select(total.c.bytes).where(
    total.c.team_id == bindparam("team_id"), total.c.subject == bindparam("subject")
)
# A failed sandbox never runs again, but its disk may still exist.
_RUNS = sandbox.c.state != SandboxState.FAILED
_OF_SANDBOXES = select(
    func.count(),
    func.coalesce(func.sum(case((_RUNS, sandbox.c.cpus), else_=0.0)), 0.0),
    func.coalesce(func.sum(case((_RUNS, sandbox.c.memory_mib), else_=0)), 0),
    func.coalesce(func.sum(sandbox.c.disk_mib), 0),
).where(sandbox.c.team_id == bindparam("team_id"), NOT_DELETED)
_SNAPSHOT = func.coalesce(snapshot.c.size_bytes, 0)
_VOLUME = func.coalesce(volume.c.size_mib, DEFAULT_MIB)
_DISK = union_all(
    # A volume without a size, on providers that cannot limit it, counts as the default size.
    select(func.coalesce(func.sum(cast(_VOLUME, BigInteger) * MIB), 0)).where(
        volume.c.team_id == bindparam("team_id")
    ),
    select(
        func.coalesce(
            func.sum(case((_SNAPSHOT < _SMALLEST_SNAPSHOT, _SMALLEST_SNAPSHOT), else_=_SNAPSHOT)),
            0,
        )
    ).where(snapshot.c.team_id == bindparam("team_id")),
    select(func.coalesce(func.sum(build_file.c.bytes), 0)).where(
        build_file.c.team_id == bindparam("team_id")
    ),
    # An image that several teams have named counts for each of them.
    select(func.coalesce(func.sum(team_image.c.bytes), 0)).where(
        team_image.c.team_id == bindparam("team_id")
    ),
)
_TASKS = select(func.count()).where(task.c.team_id == bindparam("team_id"), NOT_OVER)


class SqlQuotas:
    """The port's `Quotas`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def limits(self, team_id: str) -> Limits:
        return self._limits(team_id, (team_id,))

    def in_force(self, team_id: str) -> Limits:
        return self._limits(team_id, (INSTALLATION, team_id))

    def _limits(self, team_id: str, wanted: tuple[str, ...]) -> Limits:
        rows = self._connection.execute(_LIMITS, {"team_id": team_id}).all()
        known = set(QuotaName)
        return {
            QuotaName(row.name): row.most
            for whose in wanted
            for row in rows
            if row.team_id == whose and row.name in known
        }

    def put(self, team_id: str, limits: Limits) -> None:
        self.reset(team_id, frozenset(limits))
        rows = [{"team_id": team_id, "name": k, "most": most} for k, most in limits.items()]
        if rows:
            self._connection.execute(insert(table), rows)

    def reset(self, team_id: str, names: frozenset[QuotaName]) -> None:
        same = (table.c.team_id == team_id, table.c.name.in_(sorted(names)))
        self._connection.execute(delete(table).where(*same))

    def usage(self, team_id: str) -> Usage:
        which = {"team_id": team_id}
        count, cpus, memory, of_sandboxes = self._connection.execute(_OF_SANDBOXES, which).one()
        disk = sum(int(row[0]) for row in self._connection.execute(_DISK, which))
        return Usage(
            sandboxes=count,
            cpus=float(cpus),
            memory_mib=int(memory),
            disk_mib=int(of_sandboxes) + disk / MIB,
            tasks=self._connection.execute(_TASKS, which).scalar_one(),
            events_mib=self.stored(team_id) / MIB,
        )

    def stored(self, team_id: str, subject: str = "") -> int:
        asked = {"team_id": team_id, "subject": subject}
        return self._connection.execute(_STORED, asked).scalar() or 0

    def build_file_bytes(self, team_id: str) -> int:
        query = select(func.sum(build_file.c.bytes)).where(build_file.c.team_id == team_id)
        return int(self._connection.execute(query).scalar() or 0)

    def put_build_file(self, team_id: str, digest: str, size: int, at: float) -> None:
        self.remove_build_file(team_id, digest)
        row = {"team_id": team_id, "digest": digest, "bytes": size, "at": at}
        self._connection.execute(insert(build_file), row)

    def forget_build_files(self, team_id: str, before: float) -> None:
        same = (build_file.c.team_id == team_id, build_file.c.at < before)
        self._connection.execute(delete(build_file).where(*same))

    def remove_build_file(self, team_id: str, digest: str) -> None:
        same = (build_file.c.team_id == team_id, build_file.c.digest == digest)
        self._connection.execute(delete(build_file).where(*same))


def count_stored(connection: Connection, sizes: Iterable[tuple[str, str, int]]) -> None:
    """Add to the stored bytes of a team and a subject. Negative sizes subtract."""
    sums: dict[tuple[str, str], int] = {}
    for team_id, subject, size in sizes:
        for key in {(team_id, subject), (team_id, "")}:
            sums[key] = sums.get(key, 0) + size
    if sums:
        rows = [{"team_id": t, "subject": s, "bytes": size} for (t, s), size in sums.items()]
        connection.execute(_ADD, rows)


def forget_empty(connection: Connection) -> None:
    """Delete the totals of subjects that have no stored events left."""
    connection.execute(delete(total).where(total.c.bytes <= literal(0)))
