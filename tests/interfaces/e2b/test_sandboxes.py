"""Sandboxes by the unmodified SDK: made, found, listed, kept, ended."""

import pytest

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
