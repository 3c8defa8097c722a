"""Tasks of a team at its quotas: they wait for room, and their agents store no more than they may.

Issue: quotas per team; a sandbox fills the control plane's database.
"""

import pytest

from paddock.domain.quota import QuotaName
from paddock.domain.task import TaskState as S
from paddock.services.wishes import Wish
from tests.tasks.conftest import Working

pytestmark = pytest.mark.timeout(120)


async def limit(working: Working, **limits) -> None:
    named = {QuotaName(name): most for name, most in limits.items()}
    team = working.who.team_id
    await working.plane.services.store.write(lambda tx: tx.quotas.put(team, named))


@pytest.fixture
async def limited(working):
    yield working
    team = working.who.team_id
    every = frozenset(QuotaName)
    await working.plane.services.store.write(lambda tx: tx.quotas.reset(team, every))


async def test_a_task_waits_for_room_in_its_teams_quota_and_goes_on(limited):
    sandboxes = limited.plane.services.sandboxes
    other = await sandboxes.create(limited.who, Wish(template="plain"))
    store = limited.plane.services.store
    used = await store.read(lambda tx: tx.quotas.usage(limited.who.team_id))
    await limit(limited, sandboxes=used.sandboxes)
    task = await limited.begin({"say": "x"}, timeout_s=90.0)
    stands = await limited.until(task, lambda now: now.detail)
    assert (stands.state, stands.phase) == (S.CREATING, "sandbox")
    assert "sandboxes" in stands.detail
    assert "operator" in stands.detail
    await sandboxes.delete(limited.who, other.id)
    await limited.until(task, lambda now: now.state is S.COMPLETED)


async def test_an_agent_without_room_for_its_events_does_its_work_all_the_same(limited):
    await limit(limited, sandbox_events_mib=0)
    task = await limited.begin({"say": "one"}, {"say": "two"})
    done = await limited.until(task, lambda now: now.state.is_final)
    assert done.state is S.COMPLETED
    store = limited.plane.services.store
    events = await store.read(lambda tx: tx.events.after(0, 1000, subject=task.id))
    kinds = [each.kind for each in events]
    assert "task.completed" in kinds, "what Paddock tells of a task is stored in any case"
    assert not [kind for kind in kinds if kind.startswith("agent.")]
    assert await store.read(lambda tx: tx.outputs.size(task.id)) == 0
