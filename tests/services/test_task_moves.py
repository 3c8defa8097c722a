"""How tasks are moved on, and why they ended that somebody's refusal ended."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from paddock.adapters.vault import KeyVault
from paddock.domain import errors
from paddock.domain.ids import new_id
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.ports.clock import SystemClock
from paddock.services.approvals import Approvals
from paddock.services.once import Once
from paddock.services.task_hold import Fenced, Hold
from paddock.services.task_moves import Moves, reason_of
from paddock.services.wakes import Wakes
from tests.adapters.store.conftest import place, postgres_place, sqlite_place, store

__all__ = ["place", "postgres_place", "sqlite_place", "store"]  # fixtures


@pytest.mark.proves("T7")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (errors.Refused, Reason.PROVIDER),
        (errors.Broken, Reason.PROVIDER),
        (errors.Unavailable, Reason.PROVIDER),
        (errors.Conflict, Reason.SANDBOX_UNAVAILABLE),
        (errors.NotFound, Reason.SANDBOX_UNAVAILABLE),
        (errors.LimitExceeded, Reason.SANDBOX_UNAVAILABLE),
        (errors.Forbidden, Reason.SURROUNDINGS),
        (errors.InvalidRequest, Reason.SURROUNDINGS),
        (errors.PaddockError, Reason.INTERNAL),
    ],
)
def test_every_refusal_is_told_from_every_other(kind, reason):
    assert reason_of(kind("no")) is reason


async def test_whoever_lost_a_task_has_ended_what_they_did_for_it(store):
    team, clock, wakes = Team(new_id("tem"), new_id("team"), 1.0), SystemClock(), Wakes()
    task = TaskRecord(new_id("tsk"), team.id, "a", TaskWish("do it", "command"), 1.0, 1.0)
    await store.write(lambda tx: (tx.teams.add(team), tx.tasks.add(task)))
    hold, begun, ended = await Hold.take(store, clock, task), asyncio.Event(), asyncio.Event()

    async def check():
        with suppress(asyncio.CancelledError):
            begun.set()
            await asyncio.sleep(600)
        ended.set()

    moves = Moves(clock, wakes, Approvals(store, clock, Once(store, clock, KeyVault([bytes(32)]))))
    going = asyncio.create_task(moves.unless_cancelled(hold, check()))
    async with asyncio.timeout(60):
        await begun.wait()
        lease = replace(task.lease, fence=task.lease.fence + 1)
        await store.write(lambda tx: tx.tasks.replace(replace(task, lease=lease)))
        wakes.wake(task.id)
        with pytest.raises(Fenced):
            await going
    assert ended.is_set()
