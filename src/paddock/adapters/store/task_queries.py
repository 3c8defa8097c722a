"""The longer questions about tasks, as queries."""

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, not_, or_, select

from paddock.adapters.store.paging import newest_first
from paddock.adapters.store.task_schema import NOT_OVER, task, task_after, task_label
from paddock.domain.task import TaskState
from paddock.ports.store import Page
from paddock.ports.tasks import TaskFilter

LIGHT = tuple(column for column in task.c if column.name != "wish")
"""A wish can be large, and many are looked at to choose one."""
HAS_BEGUN = task.c.state != TaskState.PENDING.value
_NAMED = ("agent", "sandbox_id", "batch", "attempt_of")
_BAD_ENDS = (TaskState.FAILED.value, TaskState.CANCELLED.value)


def at_work(now: float, of: Any = task) -> ColumnElement[bool]:
    """Begun, or just taken up by somebody who is still there."""
    has_begun = of.c.state != TaskState.PENDING.value
    return or_(has_begun, and_(of.c.owner != "", of.c.until >= now))


def listing(team_id: str, wanted: TaskFilter, page: Page) -> Select[Any]:
    """The query for a page. With labels, the index of the first one is what is walked along."""
    query, key = select(task), task.c.id
    for number, (name, value) in enumerate(sorted(wanted.labels.items())):
        one = task_label.alias()
        same = and_(one.c.task_id == task.c.id, one.c.name == name, one.c.value == value)
        query = query.join(one, same & (one.c.team_id == team_id))
        key = key if number else one.c.task_id
    query = newest_first(query, key, page).where(task.c.team_id == team_id)
    for name in _NAMED:
        if value := getattr(wanted, name):
            query = query.where(task.c[name] == value)
    if wanted.has_sandbox is not None:
        none = task.c.sandbox_id == ""
        query = query.where(~none if wanted.has_sandbox else none)
    if wanted.states:
        query = query.where(task.c.state.in_(sorted(wanted.states)))
    if wanted.ended_before is not None:
        query = query.where(task.c.ended_at < wanted.ended_before)
    return query


def waiting(now: float, each: int) -> Select[Any]:
    """Of each team and provider the oldest so many that could begin, were there room: none that
    waits for another task or for a sandbox, since those would hide the ones behind them."""
    free = (
        select(task.c.id, task.c.team_id, task.c.provider, task.c.sandbox_id)
        .where(NOT_OVER, not_(HAS_BEGUN), task.c.until < now, _may_begin())
        .where(task.c.sandbox_id.not_in(_busy(now)))
        .subquery()
    )
    # Tasks in one sandbox take turns, so that of those only the first counts.
    shares = case((free.c.sandbox_id != "", free.c.sandbox_id), else_=free.c.id)
    first = func.row_number().over(partition_by=shares, order_by=free.c.id)
    firsts = select(free, first.label("first")).subquery()
    place = func.row_number().over(
        partition_by=(firsts.c.team_id, firsts.c.provider), order_by=firsts.c.id
    )
    placed = select(firsts.c.id, place.label("place")).where(firsts.c.first == 1).subquery()
    ids = select(placed.c.id).where(placed.c.place <= each)
    return select(*LIGHT).where(task.c.id.in_(ids)).order_by(task.c.id)


def _may_begin() -> ColumnElement[bool]:
    """Nothing that comes before it is still to be done, or it never can be: that is its end."""
    before = task.alias("before")
    joined = and_(task_after.c.task_id == task.c.id, before.c.id == task_after.c.before_id)
    undone = exists().where(joined, before.c.state != TaskState.COMPLETED.value)
    never = exists().where(joined, before.c.state.in_(_BAD_ENDS))
    return or_(not_(undone), never)


def _busy(now: float) -> Select[Any]:
    other = task.alias("other")
    # `state` as text is that of the innermost query.
    return select(other.c.sandbox_id).where(NOT_OVER, at_work(now, other), other.c.sandbox_id != "")
