"""The same request with the same key is done once, whoever asks how often, and when."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.domain.ids import new_id
from paddock.domain.repetition import own_key
from paddock.interfaces.api.context import idempotency_key
from paddock.interfaces.e2b.context import idempotency_key as e2b_key
from tests.control_plane import remove_all, running

EVERY_DATABASE = True
MARK = {"cmd": ["sh", "-c", "echo once >> mark; cat mark; echo oops >&2; exit 3"]}


def keyed(key):
    return {"headers": {"Idempotency-Key": key}}


async def marks(plane, box):
    ran = await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["cat", "mark"]})
    return ran["stdout"].splitlines()


@pytest.mark.proves("P14")
async def test_a_command_that_is_waited_for_runs_once_for_all_who_ask(plane, box):
    path = f"/v1/sandboxes/{box['id']}/exec"
    answers = await asyncio.gather(
        *(plane.admin.post(path, MARK, **keyed("exec-1")) for _ in range(8))
    )
    later = await plane.admin.post(path, MARK, **keyed("exec-1"))
    for answer in (*answers, later):
        assert answer.status == 200, answer.body
        assert answer.body == {
            "exit_code": 3,
            "reason": "exited",
            "stdout": "once\n",
            "stderr": "oops\n",
            "truncated": False,
        }
    assert await marks(plane, box) == ["once"]
    plain = await plane.admin.post(path, MARK)
    assert plain["stdout"] == "once\nonce\n", "without a key every request is a new one"


async def test_more_output_than_asked_for_is_left_out_and_said(plane, box):
    path, wish = f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["seq", "1000"], "max_output_bytes": 5}
    answer = await plane.admin.post(path, wish, **keyed("much"))
    assert (answer["stdout"], answer["truncated"]) == ("1\n2\n3", True)


async def test_a_deadline_is_an_answer_too(plane, box):
    path, wish = f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["sleep", "30"], "timeout_s": 0.3}
    for _ in range(2):
        answer = await plane.admin.post(path, wish, **keyed("slow"))
        assert (answer.status, answer["exit_code"]) == (200, 124)


@pytest.mark.proves("P14")
@pytest.mark.parametrize("own_id", [True, False], ids=["an id", "any key"])
async def test_a_command_in_the_background_starts_once(plane, box, own_id):
    key = new_id("cmd") if own_id else f"background {new_id('x')}"
    path = f"/v1/sandboxes/{box['id']}/commands"
    answers = await asyncio.gather(*(plane.admin.post(path, MARK, **keyed(key)) for _ in range(8)))
    assert {answer.status for answer in answers} == {201}
    (command,) = {answer["id"] for answer in answers}
    if own_id:
        assert command == key
    follow = f"{path}/{command}/output?format=ndjson"
    last = [line async for line in plane.admin.lines("GET", follow)][-1]
    assert last["exit_code"] == 3
    assert await marks(plane, box) == ["once"]


@pytest.mark.proves("E12")
async def test_a_stream_with_the_same_key_follows_the_same_command(plane, box):
    path = f"{plane.url}/v1/sandboxes/{box['id']}/exec/stream?format=ndjson"
    headers = {"authorization": f"Bearer {plane.admin.token}", "Idempotency-Key": "stream-1"}
    seen = []
    for _ in range(2):
        async with plane.session.post(path, json=MARK, headers=headers) as answer:
            seen.append([json.loads(line) async for line in answer.content if line.strip()])
    assert seen[0][0]["id"] == seen[1][0]["id"]
    assert seen[0][-1] == seen[1][-1], "and the same end"
    assert await marks(plane, box) == ["once"]


@pytest.mark.proves("P14")
@pytest.mark.parametrize("route", ["exec", "commands", "exec/stream"])
@pytest.mark.parametrize("key", ["any-{}", "cmd_01m7gtyyx9nwfrs92mc398zrgh"], ids=["any", "id"])
async def test_another_request_with_the_same_key_is_refused(plane, box, route, key):
    path, key = f"/v1/sandboxes/{box['id']}/{route}", key.format(route)
    assert (await plane.admin.post(path, MARK, **keyed(key))).status in (200, 201)
    other = await plane.admin.post(path, {"cmd": ["echo", "other"]}, **keyed(key))
    assert (other.status, other.error["code"]) == (409, "conflict")
    assert "another request" in other.error["message"]


async def test_a_key_is_one_teams_own(plane, box):
    other = await plane.team("keyholders")
    mine = await plane.admin.post("/v1/sandboxes", {"template": "plain"}, **keyed("shared"))
    theirs = await other.post("/v1/sandboxes", {"template": "plain"}, **keyed("shared"))
    assert (mine.status, theirs.status) == (201, 201)
    assert mine["id"] != theirs["id"]


@pytest.mark.proves("P14")
async def test_a_key_is_known_after_a_restart(empty_database):
    place = Path(tempfile.mkdtemp(prefix="pd-"))
    try:
        async with running(place, database=empty_database) as plane:
            box = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
            path = f"/v1/sandboxes/{box['id']}"
            first = await plane.admin.post(f"{path}/exec", MARK, **keyed("exec"))
            begun = await plane.admin.post(f"{path}/commands", MARK, **keyed("begun"))
        async with running(place, database=empty_database) as plane:
            try:
                again = await plane.admin.post(f"{path}/exec", MARK, **keyed("exec"))
                assert (again.status, again.body) == (first.status, first.body)
                again = await plane.admin.post(f"{path}/commands", MARK, **keyed("begun"))
                assert again["id"] == begun["id"]
                assert await marks(plane, box) == ["once", "once"]
            finally:
                await remove_all(plane)
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def test_no_request_can_have_a_key_of_paddocks_own():
    own = own_key("task tsk_1")
    with pytest.raises(InvalidRequest, match="not usable"):
        await idempotency_key(own)
    assert await e2b_key(own) != own
