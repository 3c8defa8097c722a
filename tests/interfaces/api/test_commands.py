"""Commands over HTTP."""

import asyncio
import base64

import pytest

EVERY_DATABASE = True


def path(box, rest):
    return f"/v1/sandboxes/{box['id']}/{rest}"


@pytest.mark.proves("E1", "E9")
async def test_streams_are_separate_arguments_are_untouched_and_bytes_survive(plane, box):
    script = 'printf "%s" "$1"; printf "%s" err >&2'
    wish = {"cmd": ["sh", "-c", script, "sh", "$(id) `id` 'q' \"d\" \n"], "stdin": "x"}
    ran = await plane.admin.post(path(box, "exec"), wish)
    assert (ran["stdout"], ran["stderr"]) == ("$(id) `id` 'q' \"d\" \n", "err")
    every_byte = bytes(range(256))
    wish = {
        "cmd": ["cat"],
        "stdin_base64": base64.b64encode(every_byte).decode(),
        "encoding": "base64",
    }
    ran = await plane.admin.post(path(box, "exec"), wish)
    assert base64.b64decode(ran["stdout"]) == every_byte


@pytest.mark.proves("E3", "E4")
async def test_a_deadline_ends_the_tree_with_124_and_what_was_said_so_far(plane, box):
    wish = {"cmd": ["sh", "-c", "echo before; sleep 100 & sleep 100"], "timeout_s": 0.5}
    ran = await plane.admin.post(path(box, "exec"), wish)
    assert (ran["exit_code"], ran["reason"], ran["stdout"]) == (124, "deadline", "before\n")


@pytest.mark.proves("E2")
async def test_a_stream_tells_output_as_it_comes_and_then_the_code(plane, box):
    script = "echo one; sleep 0.3; echo two >&2; exit 7"
    loop, times, messages = asyncio.get_running_loop(), [], []
    async for line in plane.admin.lines(
        "POST", path(box, "exec/stream?format=ndjson"), {"cmd": ["sh", "-c", script]}
    ):
        times.append(loop.time())
        messages.append(line)
    assert [line["type"] for line in messages] == ["started", "output", "output", "exit"]
    assert (messages[1]["stream"], messages[1]["data"]) == ("stdout", "one\n")
    assert (messages[2]["stream"], messages[2]["data"]) == ("stderr", "two\n")
    assert messages[3]["exit_code"] == 7
    assert times[2] - times[1] > 0.2


@pytest.mark.proves("E6", "E12")
async def test_a_command_goes_on_alone_and_is_followed_from_any_offset(plane, box):
    script = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done"
    command = ""
    async for line in plane.admin.lines(
        "POST", path(box, "exec/stream?format=ndjson"), {"cmd": ["sh", "-c", script]}
    ):
        if line["type"] == "started":
            command = line["id"]
        if line.get("offset") == 7:
            break  # the connection ends in the middle
    whole = "".join(f"line {number}\n" for number in range(1, 7))
    for start in (0, 9, 14):
        rest, code = "", None
        async for line in plane.admin.lines(
            "GET", path(box, f"commands/{command}/output?format=ndjson&cursor=stdout:{start}")
        ):
            rest += line.get("data", "")
            code = line.get("exit_code", code)
        assert (rest, code) == (whole[start:], 0)
    shown = await plane.admin.get(path(box, f"commands/{command}"))
    assert (shown["exit_code"], shown["reason"]) == (0, "exited")
    assert (await plane.admin.delete(path(box, f"commands/{command}"))).status == 204
    assert (await plane.admin.get(path(box, f"commands/{command}"))).status == 404


@pytest.mark.proves("E6")
async def test_server_sent_events_resume_by_their_last_id(plane, box):
    answer = await plane.admin.post(
        path(box, "commands"), {"cmd": ["sh", "-c", "echo äöü; echo more"]}
    )
    assert answer.status == 201
    first = (await plane.admin.get(path(box, f"commands/{answer['id']}/output"))).body.decode()
    assert "event: exit\n" in first
    cursor = "stdout:7"  # the first line has seven bytes
    rest = await plane.admin.get(
        path(box, f"commands/{answer['id']}/output"), headers={"Last-Event-ID": cursor}
    )
    assert "äöü" not in rest.body.decode()
    assert '"data":"more\\n"' in rest.body.decode()


async def test_a_character_is_never_cut_in_two(plane, box):
    script = r"printf '\303'; sleep 0.2; printf '\244'; sleep 0.2; printf '\377'"
    messages = [
        line
        async for line in plane.admin.lines(
            "POST", path(box, "exec/stream?format=ndjson"), {"cmd": ["bash", "-c", script]}
        )
    ]
    output = [line for line in messages if line["type"] == "output"]
    assert [(line["offset"], line.get("data"), line.get("data_base64")) for line in output] == [
        (0, "ä", None),
        (2, None, "/w=="),
    ]


@pytest.mark.proves("E5")
async def test_a_command_with_a_terminal_is_written_to_resized_and_ended(plane, box):
    wish = {"cmd": ["bash", "--norc"], "terminal": [100, 30]}
    command = (await plane.admin.post(path(box, "commands"), wish))["id"]
    assert (
        await plane.admin.post(path(box, f"commands/{command}/resize"), {"columns": 77, "rows": 20})
    ).status == 204
    await plane.admin.post(path(box, f"commands/{command}/input"), {"data": "stty size; exit 5\n"})
    text, code = "", None
    async for line in plane.admin.lines(
        "GET", path(box, f"commands/{command}/output?format=ndjson")
    ):
        text += line.get("data", "")
        code = line.get("exit_code", code)
    assert "20 77" in text
    assert code == 5


async def test_a_command_is_killed_with_everything_it_started(plane, box):
    wish = {"cmd": ["sh", "-c", "sleep 1000 & trap '' TERM; echo up; sleep 1000"]}
    command = (await plane.admin.post(path(box, "commands"), wish))["id"]
    assert (await plane.admin.post(path(box, f"commands/{command}/kill?grace_s=0.2"))).status == 202
    messages = [
        line
        async for line in plane.admin.lines(
            "GET", path(box, f"commands/{command}/output?format=ndjson")
        )
    ]
    assert messages[-1]["type"] == "exit"
    assert messages[-1]["exit_code"] != 0


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"cmd": []}, 400),
        ({"cmd": [""]}, 400),
        ({"cmd": "ls"}, 400),
        ({"cmd": ["a\0b"]}, 400),
        ({"cmd": ["true"], "timeout_s": 0}, 400),
        ({"cmd": ["true"], "timeout_s": 4000}, 400),
        ({"cmd": ["true"], "stdin_base64": "***"}, 400),
        ({"cmd": ["true"], "user": "nobody-here"}, 400),
        ({"cmd": ["/no/such/program"]}, 400),
    ],
    ids=str,
)
async def test_a_command_that_makes_no_sense_is_refused(plane, box, wish, status):
    answer = await plane.admin.post(path(box, "exec"), wish)
    assert answer.status == status, answer.body
    assert answer.error["message"]
    assert answer.error["remediation"]


@pytest.mark.parametrize("route", ["exec", "commands"])
@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"cmd": ["no-such-program"]}, 127),
        ({"cmd": ["/etc"]}, 126),
        ({"cmd": ["true"], "cwd": "/no"}, None),
    ],
)
async def test_a_command_that_never_began_has_an_end_too(plane, box, route, *, wish, code):
    refused = await plane.admin.post(path(box, route), wish)
    assert (refused.status, refused.error["code"]) == (400, "invalid_request")
    assert refused.error.get("exit_code") == code
    async with asyncio.timeout(10):
        while True:
            events = (await plane.admin.get(f"/v1/events?subject={box['id']}&limit=200"))["items"]
            told = [event for event in events if event["kind"].startswith("command.")]
            if len(told) == 2:
                break
            await asyncio.sleep(0.05)
    assert [event["kind"] for event in told] == ["command.started", "command.ended"]
    assert told[1]["data"] == {"command": told[0]["data"]["command"], "reason": "not_started"}


async def test_an_unknown_command_is_not_found(plane, box):
    for name in ("cmd_01m7gtzqqfngph3p4byaj5w62k", "nonsense", "../../x"):
        assert (await plane.admin.get(path(box, f"commands/{name}/output"))).status == 404


@pytest.mark.proves("E12")
async def test_a_place_that_the_output_does_not_have_is_refused_at_once(plane, box):
    ran = await plane.admin.post(path(box, "commands"), {"cmd": ["echo", "seven.."]})
    output = path(box, f"commands/{ran['id']}/output")
    async with asyncio.timeout(10):
        async for _ in plane.admin.lines("GET", f"{output}?format=ndjson"):
            pass
    assert (await plane.admin.get(f"{output}?cursor=stdout:8")).status == 200
    for cursor, told in (
        ("stdout:9", "ends at 8, before 9"),
        ("stdout:8,stderr:1", "stderr of command"),
        ("pty:0", "has no pty"),
        ("stdout", "is no place"),
        ("8", "is no place"),
        ("stdout:-1", "is no place"),
        (f"stdout:{'9' * 30}", "is no place"),
    ):
        for asked in (
            plane.admin.get(f"{output}?cursor={cursor}"),
            plane.admin.get(output, headers={"Last-Event-ID": cursor}),
        ):
            refused = await asked
            assert (refused.status, refused.error["code"]) == (400, "invalid_request"), cursor
            assert told in refused.error["message"]
