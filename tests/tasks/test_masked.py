"""What a task's programs say of secrets is not kept: not in events, nor in output, nor results."""

import itertools
import json

import pytest

from paddock.domain.task import TaskState
from paddock.domain.task_wish import Check
from tests.tasks.conftest import command

VALUE = "tok/en-of+somebody=0123456789"


@pytest.mark.proves("K9")
async def test_what_an_agent_says_of_a_secret_is_kept_without_it(working):
    checks = (Check("tells", ("sh", "-c", "echo checked $DEPLOY_TOKEN; false")),)
    task = await working.done(
        {"run": "echo this is $DEPLOY_TOKEN."},
        {"run": "printf %s $DEPLOY_TOKEN | base64 -w0"},
        {"run": 'printf "%s" "$DEPLOY_TOKEN" > leaked; cat leaked'},
        {"say": "done"},
        env={"DEPLOY_TOKEN": VALUE, "GREETING": "hello and welcome"},
        checks=checks,
    )
    assert task.state is TaskState.FAILED
    kept = await working.tasks.output(working.who, task.id, (0, -1), 100)
    raw = b"".join(each.data for each in kept)
    told = [each.data for each in await working.events(task)]
    forms = (VALUE, VALUE.replace("/", "\\/"), "dG9rL2VuLW9mK3NvbWVib2R5PTAxMjM0NTY3ODk")
    for form in forms:
        assert form.encode() not in raw
        assert form not in json.dumps(told, default=str)
        assert form not in repr(task.result)
        assert form not in task.detail
    assert b"this is (DEPLOY_TOKEN)**" in raw
    assert any("this is (DEPLOY_TOKEN)" in json.dumps(each, default=str) for each in told)
    assert "checked (DEPLOY_TOKEN)" in task.result.checks[0].output
    # Offsets are those of what was written, and what the task made is as it made it.
    places = [(each.offset, len(each.data)) for each in kept]
    assert all(a + size == b for (a, size), (b, _) in itertools.pairwise(places))
    ran = await working.plane.services.commands.run(
        working.who, task.sandbox_id, command("cat", f"{task.directory}/leaked")
    )
    assert ran.stdout.decode() == VALUE


@pytest.mark.proves("K9")
async def test_what_it_complains_of_is_kept_without_it_too(working):
    task = await working.done(
        {"run": "echo $DEPLOY_TOKEN"}, {"crash": 3}, env={"DEPLOY_TOKEN": VALUE}
    )
    assert VALUE not in task.detail
    assert VALUE not in json.dumps([each.data for each in await working.events(task)], default=str)
