"""process.Process as E2B's SDKs speak it."""

import asyncio
import base64
import json
import time
from typing import Any

import pytest

from paddock.domain.errors import NotFound
from paddock.guest_client import Guest
from paddock.guest_client.commands import Ended, Output, Started
from tests.guest.raw import Raw, as_user, b64, frame, outputs

pytestmark = pytest.mark.timeout(30)

START = "process.Process/Start"


def bash(script: str, **more: Any) -> dict[str, Any]:
    """What the SDK sends for a command."""
    return {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", script], "envs": {}}, **more}


async def _run(raw: Raw, message: Any, **headers: str) -> list[tuple[int, Any]]:
    async with raw.stream(START, message, **headers) as stream:
        return await stream.all()


@pytest.mark.proves("E2")
async def test_a_command_streams_start_data_and_end_in_this_order(raw: Raw) -> None:
    async with raw.stream(START, bash("echo out; echo err >&2; exit 7")) as stream:
        assert stream.response.status == 200
        assert stream.response.headers["content-type"] == "application/connect+json"
        frames = await stream.all()
    assert [flags for flags, _ in frames] == [0] * (len(frames) - 1) + [2]
    assert frames[0][1]["event"]["start"]["pid"] > 0
    assert (outputs(frames, "stdout"), outputs(frames, "stderr")) == (b"out\n", b"err\n")
    end = {"exitCode": 7, "exited": True, "status": "exit status 7", "error": "exit status 7"}
    assert frames[-2][1] == {"event": {"end": end}}
    assert frames[-1] == (2, {})


async def test_success_has_no_error(raw: Raw) -> None:
    frames = await _run(raw, bash("true"))
    end = {"exitCode": 0, "exited": True, "status": "exit status 0"}
    assert frames[-2][1] == {"event": {"end": end}}


@pytest.mark.proves("E2")
async def test_output_arrives_while_the_command_runs(raw: Raw, guest: Guest) -> None:
    script = "rm -f go; echo one; until test -e go; do sleep 0.02; done; echo two"
    async with raw.stream(START, bash(script)) as stream:
        await stream.next()
        assert (await stream.next())[1] == {"event": {"data": {"stdout": b64(b"one\n")}}}
        await guest.files.write("go", b"")
        assert (await stream.next())[1] == {"event": {"data": {"stdout": b64(b"two\n")}}}


async def test_the_request_may_be_chunked_as_python_sends_it(raw: Raw) -> None:
    async def pieces() -> Any:
        body = frame(json.dumps(bash("echo chunked")).encode())
        for at in range(0, len(body), 7):
            yield body[at : at + 7]

    answer = await raw(
        "POST", f"/{START}", headers={"content-type": "application/connect+json"}, body=pieces()
    )
    assert b64(b"chunked\n").encode() in answer.body


async def test_the_user_the_environment_and_the_directory_are_as_asked(raw: Raw) -> None:
    message = bash("id -un; pwd; echo $X $HOME $E2B_SANDBOX")
    message["process"] |= {"envs": {"X": "1"}, "cwd": "/tmp"}
    frames = await _run(raw, message)
    assert outputs(frames, "stdout") == b"user\n/tmp\n1 /home/user true\n"
    frames = await _run(raw, bash("id -un; pwd"), authorization=as_user("root"))
    assert outputs(frames, "stdout") == b"root\n/root\n"


async def test_what_cannot_be_started_ends_the_stream_with_the_code(raw: Raw) -> None:
    nowhere = bash("true")
    nowhere["process"]["cwd"] = "/no/where"
    for message, headers, code, text in (
        ({"process": {"cmd": "/no/such"}}, {}, "invalid_argument", "command not found"),
        (nowhere, {}, "invalid_argument", "does not exist"),
        (bash("true"), {"authorization": as_user("x")}, "unauthenticated", "invalid username: 'x'"),
        ({}, {}, "invalid_argument", "cmd is missing"),
    ):
        frames = await _run(raw, message, **headers)
        assert len(frames) == 1
        assert frames[0][0] == 2
        assert frames[0][1]["error"]["code"] == code
        assert text in frames[0][1]["error"]["message"]


async def test_the_command_timeout_kills_and_ends_with_deadline_exceeded(raw: Raw) -> None:
    began = time.monotonic()
    frames = await _run(
        raw, bash("trap '' TERM; echo a; sleep 60; sleep 60"), connect_timeout_ms="500"
    )
    assert outputs(frames, "stdout") == b"a\n"
    assert frames[-1][1]["error"]["code"] == "deadline_exceeded"
    assert time.monotonic() - began < 30


async def test_a_death_by_signal_is_told_as_go_tells_it(raw: Raw) -> None:
    frames = await _run(raw, bash("kill -9 $$"))
    end = {"exitCode": -1, "exited": False, "status": "signal: killed", "error": "signal: killed"}
    assert frames[-2][1] == {"event": {"end": end}}


@pytest.mark.proves("E6")
async def test_a_process_survives_its_client_and_is_taken_up_again(raw: Raw) -> None:
    async with raw.stream(
        START, bash("sleep 0.6; echo later; sleep 0.2; exit 5", tag="t1")
    ) as stream:
        pid = (await stream.next())[1]["event"]["start"]["pid"]
    listed = (await raw.rpc("process.Process/List", {})).json()["processes"]
    entry = next(p for p in listed if p["pid"] == pid)
    assert entry["tag"] == "t1"
    assert entry["config"]["cmd"] == "/bin/bash"
    for selector in ({"pid": pid}, {"tag": "t1"}):
        async with raw.stream("process.Process/Connect", {"process": selector}) as again:
            frames = await again.all()
        assert frames[0][1] == {"event": {"start": {"pid": pid}}}
        assert frames[-2][1]["event"]["end"]["exitCode"] == 5
        if "pid" in selector:
            assert outputs(frames, "stdout") == b"later\n"


async def test_a_stream_of_an_unknown_process_is_not_found(raw: Raw) -> None:
    async with raw.stream("process.Process/Connect", {"process": {"pid": 999999}}) as stream:
        assert (await stream.all())[-1][1]["error"]["code"] == "not_found"
    answer = await raw.rpc(
        "process.Process/SendSignal", {"process": {"pid": 999999}, "signal": "SIGNAL_SIGKILL"}
    )
    assert (answer.status, answer.json()["code"]) == (404, "not_found")


async def test_the_timeout_of_connect_ends_only_the_stream(raw: Raw) -> None:
    async with raw.stream(START, bash("sleep 1; echo done")) as stream:
        pid = (await stream.next())[1]["event"]["start"]["pid"]
        message = {"process": {"pid": pid}}
        async with raw.stream(
            "process.Process/Connect", message, connect_timeout_ms="200"
        ) as other:
            assert (await other.all())[-1][1]["error"]["code"] == "deadline_exceeded"
        assert outputs(await stream.all(), "stdout") == b"done\n"


async def test_input_is_sent_streamed_and_closed(raw: Raw) -> None:
    command = {"cmd": "sh", "args": ["-c", "cat; sleep 0.5"]}
    async with raw.stream(START, {"process": command}) as stream:
        pid = (await stream.next())[1]["event"]["start"]["pid"]
        which = {"process": {"pid": pid}}
        sent = await raw.rpc("process.Process/SendInput", {**which, "input": {"stdin": b64(b"a")}})
        assert (sent.status, sent.json()) == (200, {})
        body = b"".join(
            frame(json.dumps(m).encode())
            for m in (
                {"start": which},
                {"data": {"input": {"stdin": b64(b"b")}}},
                {"keepalive": {}},
                {"data": {"input": {"stdin": b64(b"c")}}},
            )
        )
        answer = await raw(
            "POST",
            "/process.Process/StreamInput",
            headers={"content-type": "application/connect+json"},
            body=body,
        )
        assert answer.body == frame(b"{}") + frame(b"{}", 2)
        wrong = await raw.rpc("process.Process/SendInput", {**which, "input": {"pty": b64(b"x")}})
        assert wrong.status == 500
        assert (await raw.rpc("process.Process/CloseStdin", which)).status == 200
        closed = await raw.rpc(
            "process.Process/SendInput", {**which, "input": {"stdin": b64(b"x")}}
        )
        assert (closed.status, closed.json()["code"]) == (500, "internal")
        assert outputs(await stream.all(), "stdout") == b"abc"


async def test_stdin_false_is_dev_null(raw: Raw) -> None:
    frames = await _run(raw, {"process": {"cmd": "cat"}, "stdin": False})
    assert frames[-2][1]["event"]["end"]["exitCode"] == 0
    async with raw.stream(
        START, {"process": {"cmd": "sleep", "args": ["5"]}, "stdin": False}
    ) as stream:
        pid = (await stream.next())[1]["event"]["start"]["pid"]
        answer = await raw.rpc(
            "process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": b64(b"x")}}
        )
        assert answer.json()["code"] == "internal"
        await raw.rpc(
            "process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}
        )


@pytest.mark.proves("E5")
async def test_a_terminal_has_the_size_it_was_given_and_can_be_resized(raw: Raw) -> None:
    message = {
        "process": {
            "cmd": "/bin/bash",
            "args": ["--norc", "-i"],
            "envs": {"TERM": "xterm", "PS1": "> "},
        },
        "pty": {"size": {"cols": 91, "rows": 17}},
    }
    async with raw.stream(START, message) as stream:
        pid = (await stream.next())[1]["event"]["start"]["pid"]
        which = {"process": {"pid": pid}}

        async def say(text: str) -> None:
            data = {"pty": b64(text.encode())}
            assert (
                await raw.rpc("process.Process/SendInput", {**which, "input": data})
            ).status == 200

        await say("stty size; tty; id -un\n")
        seen = b""
        while b"user\r\n" not in seen:
            seen += base64.b64decode((await stream.next())[1]["event"]["data"]["pty"])
        assert b"17 91" in seen
        assert b"/dev/pts/" in seen
        resized = await raw.rpc(
            "process.Process/Update", {**which, "pty": {"size": {"cols": 120, "rows": 40}}}
        )
        assert resized.status == 200
        await say("stty size\n")
        while b"40 120" not in seen:
            seen += base64.b64decode((await stream.next())[1]["event"]["data"]["pty"])
        assert (await raw.rpc("process.Process/CloseStdin", which)).json()[
            "code"
        ] == "failed_precondition"
        await say("exit 3\n")
        frames = await stream.all()
    assert frames[-2][1]["event"]["end"]["exitCode"] == 3


async def test_ctrl_c_in_a_terminal_interrupts_the_foreground(guest: Guest) -> None:
    code = None
    async for event in guest.start(
        ["bash", "--norc", "-i"], terminal=(80, 24), env={"PS1": "ready> "}
    ):
        match event:
            case Started(pid):
                process = pid
                begin = b"sh -c 'echo $((6*7)); exec sleep 100'\n"
                await guest.commands.send_input(pid, begin, terminal=True)
            case Output(_, data) if b"42" in data:
                await guest.commands.send_input(process, b"\x03exit\n", terminal=True)
            case Ended(exit_code):
                code = exit_code
    assert code == 130


async def test_an_idle_stream_is_kept_alive(raw: Raw) -> None:
    message = {"process": {"cmd": "sleep", "args": ["2.5"]}}
    frames = await _run(raw, message, keepalive_ping_interval="1")
    assert [m for _, m in frames].count({"event": {"keepalive": {}}}) == 2


async def test_a_pid_means_something_in_the_sandbox(guest: Guest) -> None:
    pid = 0
    async for event in guest.start(["sleep", "100"]):
        if isinstance(event, Started):
            pid = event.pid
            assert (await guest.exec(["kill", "-0", str(pid)])).exit_code == 0
            await guest.commands.kill(pid)
    assert (await guest.exec(["kill", "-0", str(pid)])).exit_code == 1
    with pytest.raises(NotFound):
        await guest.commands.kill(pid)


async def test_a_background_child_does_not_delay_the_end_for_ever(raw: Raw) -> None:
    began = time.monotonic()
    frames = await _run(raw, bash("sleep 60 & echo hi"))
    assert frames[-2][1]["event"]["end"]["exitCode"] == 0
    assert time.monotonic() - began < 30
    await raw.rpc("paddock.Guest/Exec", {"cmd": ["pkill", "sleep"]})


async def test_two_listeners_get_the_same(guest: Guest) -> None:
    script = "for i in 1 2 3; do sleep 0.2; echo $i; done"
    heard: list[bytes] = []
    async for event in guest.start(["sh", "-c", script]):
        match event:
            case Started(pid):
                other = asyncio.create_task(_collect(guest, pid))
            case Output(_, data):
                heard.append(data)
    assert b"".join(heard) == b"1\n2\n3\n"
    assert await other == b"1\n2\n3\n"


async def _collect(guest: Guest, pid: int) -> bytes:
    return b"".join([e.data async for e in guest.commands.connect(pid) if isinstance(e, Output)])
