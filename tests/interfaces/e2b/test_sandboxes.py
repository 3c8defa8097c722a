"""Sandboxes by the unmodified SDK: made, found, listed, kept, ended."""

import time
from datetime import datetime, timedelta

import pytest

from paddock.domain.lifetime import Clockwork
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.interfaces.e2b import views

pytestmark = [pytest.mark.timeout(60)]


def test_made_used_and_killed(e2b):
    box = e2b.Sandbox.create(metadata={"who": "me"}, envs={"COLOUR": "green"}, timeout=60)
    try:
        done = box.commands.run("echo $COLOUR; id -un; pwd")
        assert (done.stdout, done.exit_code) == ("green\nuser\n/home/user\n", 0)
        assert box.is_running()
        info = box.get_info()
        assert info.metadata == {"who": "me"}
        assert info.sandbox_id == box.sandbox_id
    finally:
        assert box.kill() is True
    assert box.kill() is False
    assert not box.is_running()


def test_metadata_do_not_make_it_part_of_a_task(e2b, live):
    from e2b import SandboxQuery

    box = e2b.Sandbox.create(metadata={"task": "tsk_of_others"}, timeout=60)
    try:
        identifier = box.sandbox_id.replace("sbx", "sbx_", 1)
        used = live.do(live.plane.admin.get(f"/v1/sandboxes/{identifier}/models"))
        assert used.status == 200, used.body
        assert used["account"].endswith(f"sandbox {identifier}")
        assert box.get_info().metadata == {"task": "tsk_of_others"}
        query = SandboxQuery(metadata={"task": "tsk_of_others"})
        listed = e2b.Sandbox.list(query=query).next_items()
        assert [each.sandbox_id for each in listed] == [box.sandbox_id]
    finally:
        box.kill()


def test_a_snapshots_name_may_have_an_underscore(e2b):
    name = f"before_{time.time_ns()}"
    box = e2b.Sandbox.create(timeout=60)
    try:
        taken = box.create_snapshot(name=name)
        assert taken.snapshot_id == f"{name}:default"
        listed = e2b.Sandbox.list_snapshots(name=name).next_items()
        assert [each.snapshot_id for each in listed] == [taken.snapshot_id]
        assert e2b.Sandbox.delete_snapshot(taken.snapshot_id) is True
    finally:
        box.kill()


@pytest.mark.parametrize("fraction", [0.1234564, 0.1234567, 0.9999996])
def test_started_after_includes_the_sandbox_that_started_then(fraction):
    at, clock = 1_700_000_000 + fraction, Clockwork(active_at=1.0)
    sandbox = SandboxRecord(
        "sbx_1", "tem_1", "box", SandboxState.RUNNING, "local", at, at, clock=clock
    )
    shown = datetime.fromisoformat(views.moment(sandbox.created_at))
    assert views.started_at_or_after(sandbox, shown)
    assert not views.started_at_or_after(sandbox, shown + timedelta(microseconds=1))
