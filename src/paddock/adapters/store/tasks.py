"""Tasks, their journals and their messages in the database."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from paddock.adapters.store.quotas import ROW, count_stored
from paddock.adapters.store.records import restored, split
from paddock.adapters.store.task_queries import HAS_BEGUN, LIGHT, at_work, listing, waiting
from paddock.adapters.store.task_schema import (
    NOT_OVER,
    task,
    task_after,
    task_label,
    task_message,
    task_output,
    task_step,
)
from paddock.domain.errors import Broken, Conflict, NotFound
from paddock.domain.message import Message, MessageState
from paddock.domain.task import TaskRecord, TaskState
from paddock.domain.task_wish import TaskWish
from paddock.ports.store import Page
from paddock.ports.tasks import Output, Step, TaskFilter

_log = logging.getLogger(__name__)
_PLAIN = ("id", "team_id", "state", "sandbox_id", "batch", "attempt_of", "provider")
_MORE = ("created_at", "ended_at", "version")
_COLUMNS = (*_PLAIN, *_MORE, "wish")
_LEASE = ("owner", "fence", "until")
_ANY_WISH = {"prompt": "", "agent": ""}
_OUTPUT = ("task_id", "run", "stream", "offset", "data")
_MESSAGE = ("id", "team_id", "task_id", "state", "queued_at")
_TEAM_OF = select(task.c.team_id).where(task.c.id == bindparam("id"))
_BELONGINGS = (task_step, task_message, task_output, task_label, task_after)


class SqlTasks:
    """The port's `Tasks`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, record: TaskRecord) -> None:
        self._connection.execute(insert(task), _to_row(record))
        if labels := _label_rows(record):
            self._connection.execute(insert(task_label), labels)
        if after := dict.fromkeys(record.wish.after):
            rows = [{"task_id": record.id, "before_id": each} for each in after]
            self._connection.execute(insert(task_after), rows)

    def get(self, team_id: str, task_id: str) -> TaskRecord | None:
        query = select(task).where(task.c.id == task_id)
        if team_id:
            query = query.where(task.c.team_id == team_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _from_row(found)

    def current(self, task_id: str, wish: TaskWish) -> TaskRecord | None:
        query = select(*LIGHT).where(task.c.id == task_id)
        found = self._connection.execute(query).mappings().first()
        if found is None:
            return None
        # A wish that stands for all of them, and is exchanged for the one that is known.
        return replace(_from_row({**found, "wish": _ANY_WISH}), wish=wish)

    def list(self, team_id: str, wanted: TaskFilter, page: Page) -> Sequence[TaskRecord]:
        return self._all(listing(team_id, wanted, page))

    def replace(self, record: TaskRecord) -> TaskRecord:
        changed = replace(record, version=record.version + 1)
        row = _to_row(changed)
        del row["wish"]  # it never changes, and may be large
        same = (task.c.id == row.pop("id"), task.c.version == record.version)
        if not self._connection.execute(update(task).where(*same).values(row)).rowcount:
            raise Conflict(
                f"task {record.id} was changed meanwhile", remediation="read it again, then try"
            )
        return changed

    def claimable(self, now: float, limit: int) -> Sequence[TaskRecord]:
        query = select(*LIGHT).where(NOT_OVER, task.c.until < now, HAS_BEGUN)
        return self._light(query.order_by(task.c.id).limit(limit))

    def pending(self, now: float, each: int) -> Sequence[TaskRecord]:
        found = self._light(waiting(now, each))
        query = select(task_after.c.task_id, task_after.c.before_id).where(
            task_after.c.task_id.in_([each.id for each in found])
        )
        after: dict[str, list[str]] = {}
        for task_id, before_id in self._connection.execute(query):
            after.setdefault(task_id, []).append(before_id)
        return [
            replace(each, wish=replace(each.wish, after=tuple(after.get(each.id, ()))))
            for each in found
        ]

    def states(self, task_ids: Collection[str]) -> Mapping[str, TaskState]:
        query = select(task.c.id, task.c.state).where(task.c.id.in_(task_ids))
        return {key: TaskState(state) for key, state in self._connection.execute(query)}

    def busy(self, now: float) -> frozenset[str]:
        query = select(task.c.sandbox_id).where(NOT_OVER, at_work(now), task.c.sandbox_id != "")
        return frozenset(each for (each,) in self._connection.execute(query))

    def renew(self, owner: str, task_ids: Collection[str], until: float) -> Collection[str]:
        held = (NOT_OVER, task.c.owner == owner, task.c.id.in_(task_ids))
        mine = update(task).where(*held).values(until=until)
        return [each for (each,) in self._connection.execute(mine.returning(task.c.id))]

    def held(self, owner: str = "") -> Sequence[TaskRecord]:
        whose = task.c.owner == owner if owner else task.c.owner != ""
        return self._light(select(*LIGHT).where(NOT_OVER, whose))

    def counts(self, team_id: str) -> Mapping[str, int]:
        query = select(task.c.state, func.count()).group_by(task.c.state)
        if team_id:
            query = query.where(task.c.team_id == team_id)
        return {row[0]: row[1] for row in self._connection.execute(query)}

    def at_work(self, team_id: str, limit: int) -> Sequence[TaskRecord]:
        return self._unwished(team_id, HAS_BEGUN, limit)

    def oldest_waiting(self, team_id: str) -> TaskRecord | None:
        return next(iter(self._unwished(team_id, ~HAS_BEGUN, 1)), None)

    def _unwished(
        self, team_id: str, wanted: ColumnElement[bool], limit: int
    ) -> Sequence[TaskRecord]:
        columns = [column for column in task.c if column.name != "wish"]
        query = select(*columns).where(NOT_OVER, wanted)
        if team_id:
            query = query.where(task.c.team_id == team_id)
        rows = self._connection.execute(query.order_by(task.c.id).limit(limit)).mappings()
        return [_from_row({**row, "wish": _ANY_WISH}) for row in rows]

    def count(self, team_id: str, states: frozenset[TaskState]) -> int:
        query = select(func.count()).where(
            task.c.team_id == team_id, task.c.state.in_(sorted(states))
        )
        return self._connection.execute(query).scalar_one()

    def active(self, now: float) -> Mapping[tuple[str, str], int]:
        query = (
            select(task.c.team_id, task.c.provider, func.count())
            .where(NOT_OVER, at_work(now))
            .group_by(task.c.team_id, task.c.provider)
        )
        return {(team, place): count for team, place, count in self._connection.execute(query)}

    def ended(self, before: float, after: str, limit: int) -> Sequence[TaskRecord]:
        query = select(task).where(task.c.ended_at < before, task.c.id > after)
        return self._all(query.order_by(task.c.id).limit(limit))

    def is_awaited(self, task_id: str) -> bool:
        query = select(task_after.c.task_id).join(task, task.c.id == task_after.c.task_id)
        waits = query.where(task_after.c.before_id == task_id, NOT_OVER, ~HAS_BEGUN)
        return self._connection.execute(waits.limit(1)).first() is not None

    def remove(self, task_ids: Collection[str]) -> int:
        sizes = (
            select(task.c.team_id, task.c.id, func.sum(func.length(task_output.c.data) + ROW))
            .join(task_output, task_output.c.task_id == task.c.id)
            .where(task.c.id.in_(task_ids))
            .group_by(task.c.team_id, task.c.id)
        )
        gone = self._connection.execute(sizes).all()
        count_stored(self._connection, ((team, each, -int(size)) for team, each, size in gone))
        for table in _BELONGINGS:
            self._connection.execute(delete(table).where(table.c.task_id.in_(task_ids)))
        return self._connection.execute(delete(task).where(task.c.id.in_(task_ids))).rowcount

    def _all(self, query: Any) -> Sequence[TaskRecord]:
        return [_from_row(row) for row in self._connection.execute(query).mappings()]

    def _light(self, query: Any) -> Sequence[TaskRecord]:
        """Without what is large in a wish. One that cannot be read is in nobody's way."""
        found = []
        for row in self._connection.execute(query).mappings():
            wish = {
                "prompt": "",
                "agent": row["agent"],
                "workspace": {"sandbox": row["sandbox_id"]},
            }
            try:
                found.append(_from_row({**row, "wish": wish}))
            except Broken as error:
                _log.error("task left alone", extra={"id": row["id"], "error": error.message})
        return found


class SqlSteps:
    """The port's `Steps`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, step: Step) -> None:
        row = {
            "task_id": step.task_id,
            "name": step.name,
            "output": {"value": step.output},
            "at": step.at,
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(task_step), row)
        except IntegrityError as error:
            raise Conflict(f"task {step.task_id} has done {step.name} before") from error

    def of(self, task_id: str) -> Sequence[Step]:
        query = select(task_step).where(task_step.c.task_id == task_id).order_by(task_step.c.at)
        return [
            Step(row["task_id"], row["name"], row["output"]["value"], row["at"])
            for row in self._connection.execute(query).mappings()
        ]


class SqlMessages:
    """The port's `Messages`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, message: Message) -> None:
        self._connection.execute(insert(task_message), _message_row(message))

    def get(self, team_id: str, message_id: str) -> Message | None:
        query = select(task_message).where(task_message.c.id == message_id)
        if team_id:
            query = query.where(task_message.c.team_id == team_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _to_message(found)

    def of(
        self,
        task_id: str,
        states: frozenset[MessageState] = frozenset(),
        *,
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[Message]:
        query = select(task_message).where(
            task_message.c.task_id == task_id, task_message.c.id > after
        )
        if states:
            query = query.where(task_message.c.state.in_(sorted(states)))
        query = query.order_by(task_message.c.id).limit(limit)
        return [_to_message(row) for row in self._connection.execute(query).mappings()]

    def queued(self) -> Sequence[str]:
        # As a subquery: then the few tasks that are not over lead to their messages.
        query = select(task_message.c.id).where(
            task_message.c.task_id.in_(select(task.c.id).where(NOT_OVER)),
            task_message.c.state == MessageState.QUEUED,
        )
        return [each for (each,) in self._connection.execute(query)]

    def replace(self, message: Message) -> None:
        row = _message_row(message)
        same = task_message.c.id == row.pop("id")
        if not self._connection.execute(update(task_message).where(same).values(row)).rowcount:
            raise NotFound(f"there is no message {message.id}")


class SqlOutputs:
    """The port's `Outputs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, output: Output) -> None:
        row = {name: getattr(output, name) for name in _OUTPUT}
        self._connection.execute(insert(task_output), row)
        team_id = self._connection.execute(_TEAM_OF, {"id": output.task_id}).scalar_one()
        count_stored(self._connection, [(team_id, output.task_id, len(output.data) + ROW)])

    def of(self, task_id: str, after: tuple[int, int], limit: int) -> Sequence[Output]:
        run, offset = task_output.c.run, task_output.c.offset
        query = select(task_output).where(
            task_output.c.task_id == task_id,
            task_output.c.stream == "stdout",
            tuple_(run, offset) > tuple_(*after),
        )
        rows = self._connection.execute(query.order_by(run, offset).limit(limit)).mappings()
        return [Output(*(row[name] for name in _OUTPUT)) for row in rows]

    def size(self, task_id: str) -> int:
        query = select(func.sum(func.length(task_output.c.data)))
        found = self._connection.execute(query.where(task_output.c.task_id == task_id))
        return found.scalar_one() or 0


def _label_rows(record: TaskRecord) -> list[dict[str, str]]:
    whose = {"task_id": record.id, "team_id": record.team_id}
    return [whose | {"name": name, "value": text} for name, text in record.wish.labels.items()]


def _to_row(record: TaskRecord) -> dict[str, Any]:
    row, body = split(record, _COLUMNS)
    lease = body.pop("lease")
    row["agent"] = record.agent
    return row | {name: lease[name] for name in _LEASE} | {"body": body}


def _from_row(row: Mapping[Any, Any]) -> TaskRecord:
    lease = {name: row[name] for name in _LEASE}
    return restored(
        row["body"] | {name: row[name] for name in _COLUMNS} | {"lease": lease}, TaskRecord
    )


def _message_row(message: Message) -> dict[str, Any]:
    row, body = split(message, _MESSAGE)
    return row | {"body": body}


def _to_message(row: Mapping[Any, Any]) -> Message:
    return restored(row["body"] | {name: row[name] for name in _MESSAGE}, Message)
