"""Tasks by the SDK: with an event loop and without, and across connections that break."""

import asyncio
import inspect
import random

import pytest

from paddock import (
    AsyncAttempts,
    AsyncSandbox,
    AsyncTask,
    Attempts,
    Conflict,
    InvalidRequest,
    NotFound,
    Server,
    Task,
    TimedOut,
)
from paddock.testing.agent import prompt_of
from tests.interfaces.client.conftest import serving
from tests.interfaces.client.unreliable import seeds, unreliable
from tests.tasks.conftest import SETTINGS

pytestmark = pytest.mark.timeout(240)
PLACE = {"agent": "scripted", "template": "plain"}


@pytest.fixture(scope="module")
def running():
    with serving(works=True, settings=SETTINGS) as made:
        yield made


@pytest.mark.proves("T1")
def test_a_task_from_its_beginning_to_its_end_without_an_event_loop(server, tmp_path):
    program = tmp_path / "go"
    program.write_text("#!/bin/sh\necho went\n")
    program.chmod(0o755)
    prompt = prompt_of({"run": "./bin/go > out.txt"}, {"say": "It is there."})
    with Task.create(
        prompt,
        **PLACE,
        name="sync",
        files={"in.txt": "words", "bin/go": program, "raw": b"\0\1"},
        checks={
            "shell": "test -s in.txt && test -s raw",
            "list": {"cmd": ["cat", "out.txt"], "description": "it went", "when": "end"},
        },
        rounds=2,
        env={"A": "b"},
        budget_tokens=100,
        timeout=60,
        server=server,
    ) as task:
        kinds = [event.kind for event in task.events()]
        assert (kinds[0], kinds[-1]) == ("task.pending", "task.completed")
        done = task.wait(80)
        assert (done.state, done.ok, done.is_over) == ("completed", True, True)
        assert done.result is not None
        assert [(each.name, each.ok) for each in done.result.checks] == [
            ("shell", True),
            ("list", True),
        ]
        assert done.result.checks[1].output == "went\n"
        assert [each.path for each in done.result.files] == ["out.txt"]
        assert (done.budget["tokens"], done.env_names) == (100, ("A",))
        assert "+went" in str(task.diff())
        assert not task.diff().is_cut
        assert b'"type": "started"' in b"".join(task.output())
        assert task.revert().state == "completed"
        again = task.follow_up("One more thing.")
        assert again.wait(80).follows == task.id
        assert repr(again).startswith("<Task ")
        listed = Task.list(sandbox=done.sandbox_id, server=server)
        assert [each.id for each in listed] == [again.id, task.id]
        assert Task.connect(task.id, server=server).name == "sync"
    with pytest.raises(NotFound):
        Task.connect("tsk_nobody", server=server)


def test_it_has_every_method_with_the_same_parameters():
    for ours, theirs in ((Task, AsyncTask), (Attempts, AsyncAttempts)):
        for name, method in inspect.getmembers(theirs, inspect.isfunction):
            if not name.startswith("_"):
                mine = inspect.signature(getattr(ours, name)).parameters
                assert list(mine) == list(inspect.signature(method).parameters)


@pytest.mark.proves("M5")
async def test_it_is_told_something_waited_for_and_cancelled(server):
    task = await AsyncTask.create(prompt_of({"say": "begun"}, {"await": 9}), **PLACE, server=server)
    with pytest.raises(TimedOut, match="goes on"):
        await task.wait(0.5)
    async for event in task.events(kinds=["agent.message"]):
        assert event.data["text"] == "begun"
        break
    sent = await task.send("a word", mode="interrupt")
    assert (sent.state, sent.mode) == ("queued", "interrupt")
    assert (sent.expected_at, sent.expires_at) == (sent.queued_at, None)
    async with asyncio.timeout(20):
        while [each.state async for each in task.messages()] != ["seen"]:
            await asyncio.sleep(0.05)
    brief = await task.send("for a while", ttl=60)
    assert (brief.expires_at - brief.queued_at).total_seconds() == 60
    with pytest.raises(InvalidRequest):
        await task.send("")
    with pytest.raises(InvalidRequest):
        await task.send("for no time", ttl=0)
    with pytest.raises(Conflict):
        await task.diff()
    assert (await task.cancel()).cancelling
    done = await task.wait(80)
    assert (done.state, done.reason, done.ok) == ("cancelled", "cancelled", False)
    assert [event.kind async for event in task.events(follow=False)][-1] == "task.cancelled"
    last = [event async for event in task.events(kinds=["agent.message"])][-1]
    assert [event async for event in task.events(after=last.seq)] == []
    with pytest.raises(Conflict):
        await task.send("too late")
    await server.aclose()


@pytest.mark.proves("T20")
def test_what_is_over_is_forgotten_without_an_event_loop(server):
    prompt, labels = prompt_of({"write": ["a", "1"]}), {"of": "sdk"}
    first, second = (Task.create(prompt, **PLACE, labels=labels, server=server) for _ in range(2))
    assert first.wait(80).ok
    assert second.wait(80).ok
    with pytest.raises(Conflict, match="nowhere else"):
        first.delete()
    kept = Task.delete_all(labels=labels, states=["completed"], server=server)
    assert {each.id for each in kept.kept} == {first.id, second.id}
    assert "1 files" in kept.kept[0].why
    gone = first.delete(force=True, sandbox=True)
    assert (gone.tasks, len(gone.sandboxes)) == ((first.id,), 1)
    assert [each.id for each in Task.list(labels=labels, server=server)] == [second.id]
    assert Task.delete_all(labels=labels, force=True, server=server).tasks == (second.id,)


async def test_batches_and_attempts(server):
    body = {"prompt": prompt_of({"say": "x"}), **PLACE}
    made = await AsyncTask.batch([body, body], server=server)
    listed = [each.id async for each in AsyncTask.list(batch=made.batch, server=server)]
    assert listed == [each.id for each in reversed(made.tasks)]
    async with await AsyncSandbox.create("plain", server=server) as box:
        steps = prompt_of({"write": ["x.txt", "x\n"]}, {"say": "made"})
        group = await AsyncAttempts.begin(
            steps, [{}, {"agent": "scripted"}], agent="scripted", sandbox=box.id, server=server
        )
        first, second = [await AsyncTask.connect(each.id, server=server) for each in group.attempts]
        await first.wait(80)
        await second.wait(80)
        found = await AsyncAttempts.get(group.id, server=server)
        assert found.are_over
        assert [each.result.added for each in found.attempts] == [1, 1]
        assert (await AsyncAttempts.adopt(second.id, server=server)).adopted
        assert (await box.commands.run("cat */x.txt")).stdout == "x\n"
    await server.aclose()


@pytest.mark.proves("T5")
@pytest.mark.parametrize("seed", seeds(1, 3))
async def test_every_event_comes_once_whatever_breaks(running, seed):
    chance = random.Random(seed)
    steps = [{"say": f"{number} {'x' * chance.randrange(200)}"} for number in range(60)]
    async with (
        unreliable(running.url) as way,
        Server(f"http://127.0.0.1:{way.port}", running.token, patience_s=20) as server,
    ):
        task = await AsyncTask.create(prompt_of(*steps), **PLACE, server=server)
        await server.aclose()
        way.cut_after += [chance.randrange(300, 12_000) for _ in range(5)]
        came = [event async for event in task.events()]
        assert way.cuts > 0
    whole = await AsyncTask.connect(task.id, server=running.server())
    assert came == [event async for event in whole.events(follow=False)]
    assert [each.kind for each in came].count("agent.message") == 60
    await whole.close()


async def test_a_prompt_of_a_megabyte_is_sent(server):
    waits = await AsyncTask.create(prompt_of({"await": 1}), **PLACE, server=server)
    task = await AsyncTask.create("x" * (1 << 20), **PLACE, after=[waits.id], server=server)
    assert len((await task.info()).prompt) == 1 << 20
    await server.aclose()
