"""What stays outside: no stranger gets in, no error has another shape, no word leaks downwards."""

import json
import re
import struct
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from e2b import AuthenticationException, SandboxException
from fastapi.routing import APIRoute

from paddock.domain.egress import doors
from paddock.domain.errors import leaves
from paddock.interfaces.e2b.app import ROUTERS
from paddock.interfaces.e2b.errors import TABLE, answer
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.engines import REPOSITORY

pytestmark = [pytest.mark.timeout(120)]
BY_OTHER_MEANS = {"/process.Process/Start"} | {
    f"/volumecontent/{{volume}}/{each}" for each in ("path", "dir", "file")
}
"""Not the key, but the sandbox's or the volume's own token opens these."""


def ask(url: str, method: str = "GET", body: object = None, **headers: str) -> tuple[int, dict]:
    data = None if body is None else json.dumps(body).encode()
    kind = {} if body is None else {"content-type": "application/json"}
    request = urllib.request.Request(url, data, {**kind, **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def start(live, box, argv: list[str], query: str = "", **more: str) -> str:
    """A command as no SDK would ask for it, and all that is answered."""
    process = {"cmd": argv[0], "args": argv[1:], **more}
    message = json.dumps({"process": process}).encode()
    headers = {
        "Content-Type": "application/connect+json",
        "E2b-Sandbox-Id": box.sandbox_id,
        "X-Access-Token": box.connection_config.sandbox_headers["X-Access-Token"],
    }
    data = struct.pack("!BI", 0, len(message)) + message
    url = f"{live.url}/process.Process/Start{query}"
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as told:
        return told.read().decode("utf-8", "replace")


def test_every_error_has_its_row_and_its_shape():
    assert set(TABLE) == set(leaves())
    for kind, told in TABLE.items():
        said = answer(kind("why", remediation="do this"))
        body = json.loads(said.body)
        assert (said.status_code, body["code"]) == (told.status, told.status)
        assert body["message"] == "why; do this"
        if told.status in (429, 502, 503, 504):
            assert said.headers["should-retry"] in ("true", "false")


THEIRS = r"e2b|envd|failed to run command|invalid username"
"""Names, and words that clients of theirs look for."""


@pytest.mark.parametrize("folder", ["domain", "ports", "services", "adapters"])
def test_what_is_below_does_not_know_the_word(folder):
    files = list((REPOSITORY / "src/paddock" / folder).rglob("*.py"))
    assert len(files) > 5
    assert [each.name for each in files if re.search(THEIRS, each.read_text(), re.I)] == []


def routes():
    flat = [each for module in ROUTERS for each in module.router.routes]
    assert len(flat) > 20
    return [
        (method, each.path)
        for each in flat
        if isinstance(each, APIRoute)
        for method in sorted(each.methods)
    ]


def test_no_route_answers_who_has_no_key_and_no_team_sees_anothers(live, box):
    other = live.do(live.plane.team("e2b-borders"))
    for method, path in routes():
        if path in BY_OTHER_MEANS:
            continue
        filled = path.replace("{sandbox}", box.sandbox_id)
        filled = re.sub(r"\{\w+(:path)?\}", "nothing", filled)
        body = {} if method in ("POST", "PUT", "PATCH") else None
        status, said = ask(live.url + filled, method, body)
        assert (status, said["code"]) == (401, 401), f"{method} {path}"
        if "{sandbox}" not in path:
            continue
        whole = {"timeout": 5, "templateID": "base", "duration": 5} if body is not None else None
        status, said = ask(live.url + filled, method, whole, **{"x-api-key": other.token})
        assert (status, said["code"]) == (404, 404), f"{method} {path}: {said}"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/sandboxes/x/nothing", None, 404),
        ("PATCH", "/sandboxes", None, 405),
        ("POST", "/v2/sandboxes", {"templateID": 7}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 0}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "metadata": {"e2b.x": "y"}}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "autoResume": {"enabled": True}}, 400),
        (
            "POST",
            "/v2/sandboxes",
            {"templateID": "base", "network": {"maskRequestHost": "a\r\nX: y"}},
            400,
        ),
        ("POST", "/v2/sandboxes", {"templateID": "base", "iam": {"tokens": {}}}, 501),
        ("GET", "/v2/sandboxes?state=odd", None, 400),
        ("GET", "/v2/sandboxes?limit=1000", None, 400),
        ("GET", "/v3/nothing", None, 404),
    ],
)
def test_whatever_is_wrong_is_told_in_the_same_shape(live, method, path, body, status):
    found, said = ask(live.url + path, method, body, **{"x-api-key": live.key})
    assert (found, said["code"]) == (status, status)
    assert said["message"]


def test_of_the_guest_only_what_is_e2bs_can_be_reached(live, box):
    headers = {
        "E2b-Sandbox-Id": box.sandbox_id,
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": box.connection_config.sandbox_headers["X-Access-Token"],
    }
    for path in (
        "/paddock.Guest/Usage",
        "/init",
        "/paddock.Files/Stat",
        "/files/../init",
        "/%69nit",
    ):
        status, _ = ask(live.url + path, "POST", {}, **headers)
        assert status == 404, path
    assert ask(live.url + "/metrics", **headers)[1]["mem_total"] > 0
    without = {name: value for name, value in headers.items() if name != "X-Access-Token"}
    for path in ("/metrics", "/envs"):
        assert ask(live.url + path, **without)[0] == 401


@pytest.mark.parametrize("port", ["0", "70000", "9" * 5000, "abc"])
def test_a_port_that_is_none_is_said_to_be(live, box, port):
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": port}
    status, said = ask(f"{live.url}/x", **headers)
    assert (status, said["code"]) == (400, 400)


def test_an_end_of_a_signature_that_is_no_time_is_said_to_be(live, box):
    url = f"{live.url}/files?path=x&signature=v1_{'A' * 43}&signature_expiration={'9' * 5000}"
    for headers in ({}, {"E2b-Sandbox-Id": box.sandbox_id}):
        status, said = ask(url, **headers)
        assert (status, said["code"]) == (400, 400)


def test_the_gateway_of_a_fenced_sandbox_is_no_port_of_its(live, e2b):
    box = e2b.Sandbox.create(timeout=60, network={"allow_out": ["192.0.2.1/32"]})
    try:
        for port in doors.ALL:
            headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": str(port)}
            status, said = ask(f"{live.url}/x", **headers)
            assert (status, said["message"]) == (502, "The sandbox is running but port is not open")
    finally:
        box.kill()


def test_who_may_only_look_is_not_given_what_opens_it(live, box):
    viewer = live.do(live.plane.member(role="viewer"))
    headers = {"x-api-key": viewer.token}
    status, seen = ask(f"{live.url}/sandboxes/{box.sandbox_id}", **headers)
    assert status == 200
    assert "envdAccessToken" not in seen
    for verb in ("connect", "pause", "timeout"):
        path = f"{live.url}/sandboxes/{box.sandbox_id}/{verb}"
        assert ask(path, "POST", {"timeout": 60}, **headers)[0] == 403
    assert ask(f"{live.url}/v2/sandboxes", "POST", {"templateID": "base"}, **headers)[0] == 403


def test_a_policy_holds_for_the_sdks_commands(e2b, live):
    box = e2b.Sandbox.create(timeout=60)
    policy = {"rules": [{"name": "no curl", "command": "curl **", "verdict": "deny"}]}
    done = live.do(live.plane.admin.call("PUT", f"/v1/sandboxes/{identifier(box)}/policy", policy))
    assert done.status in (200, 204), done.body
    try:
        assert box.commands.run("echo allowed").stdout == "allowed\n"
        with pytest.raises(SandboxException, match="denied by"):
            box.commands.run("curl http://localhost")
        with pytest.raises(SandboxException, match="denied by"):
            box.commands.run("true && curl http://localhost")
        told = start(live, box, ["/bin/bash", "-l", "-c", "curl http://localhost"], "?x")
        assert "denied by" in told
    finally:
        box.kill()


def identifier(box) -> str:
    return box.sandbox_id.replace("sbx", "sbx_", 1)


async def expire(live, token_id: str) -> None:
    def end(tx) -> None:
        tx.tokens.replace(replace(tx.tokens.get(token_id), expires_at=time.time()))

    await live.plane.services.store.write(end)


def ended_within(seconds: float, works) -> None:
    """Until `works` raises: what it asks for is not given any more."""
    until = time.monotonic() + seconds
    while True:
        try:
            works()
        except AuthenticationException:
            return
        assert time.monotonic() < until, "it is still let in"
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["revoked", "expired", "removed", "demoted"])
def test_what_was_given_on_a_token_ends_with_it(live, e2b, how):
    person = live.do(live.plane.admin.post("/v1/people", {"name": f"Leaver {how}"}))["id"]
    wish = {"name": "leaver", "role": "member", "person": person}
    given = live.do(live.plane.admin.post("/v1/tokens", wish))
    theirs = live.client(api_key=given["token"])
    box = theirs.Sandbox.create(timeout=120, network={"allow_public_traffic": False})
    stays = e2b.Sandbox.connect(box.sandbox_id)
    try:
        box.files.write("kept.txt", "kept")
        url, other = box.download_url("kept.txt"), stays.download_url("kept.txt")
        handle = box.commands.run("echo on; sleep 600", background=True, timeout=0)
        with ThreadPoolExecutor(1) as aside:
            followed = aside.submit(handle.wait)
            admin = live.plane.admin
            if how == "revoked":
                assert live.do(admin.delete(f"/v1/tokens/{given['id']}")).status == 200
            elif how == "removed":
                assert live.do(admin.delete(f"/v1/people/{person}")).status == 200
            elif how == "expired":
                live.do(expire(live, given["id"]))
            elif how == "demoted":
                path = f"/v1/people/{person}"
                assert live.do(admin.call("PATCH", path, {"role": "viewer"})).status == 200
            ended_within(30, box.commands.list)
            with pytest.raises((SandboxException, AuthenticationException)):
                followed.result(30)
        with pytest.raises(AuthenticationException):
            box.files.read("kept.txt")
        assert ask(url)[0] == 401
        headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000"}
        headers["E2B-Traffic-Access-Token"] = box.traffic_access_token
        assert ask(live.url, **headers)[0] == 403
        assert stays.files.read("kept.txt") == "kept"
        with urllib.request.urlopen(other, timeout=10) as answer:
            assert answer.read() == b"kept"
    finally:
        stays.kill()


def test_a_volume_is_closed_to_who_was_let_in_before(live):
    given = live.do(live.plane.admin.post("/v1/tokens", {"name": "leaver", "role": "member"}))
    headers = {"x-api-key": given["token"]}
    name = f"left-{time.time_ns()}"
    _, volume = ask(f"{live.url}/volumes", "POST", {"name": name}, **headers)
    files = f"{live.url}/volumecontent/{volume['volumeID']}/dir?path=/"
    opened = {"authorization": f"Bearer {volume['token']}"}
    assert ask(files, **opened) == (200, [])
    assert live.do(live.plane.admin.delete(f"/v1/tokens/{given['id']}")).status == 200
    assert ask(files, **opened)[0] == 401
    assert live.do(live.plane.admin.delete(f"/v1/volumes/{name}")).status in (200, 204)


@pytest.mark.parametrize("verb", ["pause", "kill"])
def test_a_judged_command_that_is_followed_ends_with_its_sandbox(e2b, live, verb):
    box = e2b.Sandbox.create(timeout=60)
    policy = {"rules": [{"name": "no curl", "command": "curl **", "verdict": "deny"}]}
    path = f"/v1/sandboxes/{identifier(box)}/policy"
    assert live.do(live.plane.admin.call("PUT", path, policy)).status == 200
    try:
        handle = box.commands.run("sleep 600", background=True, timeout=0)
        with ThreadPoolExecutor(1) as aside:
            followed = aside.submit(handle.wait)
            getattr(box, verb)()
            with pytest.raises(SandboxException):
                followed.result(30)
    finally:
        box.kill()


def pending(live, box) -> dict:
    """The one question of a sandbox, once it has been asked."""
    path = f"/v1/approvals?state=pending&sandbox={identifier(box)}"
    until = time.monotonic() + 10
    while not (found := live.do(live.plane.admin.get(path))["items"]):
        assert time.monotonic() < until, "nothing is asked"
        time.sleep(0.05)
    (one,) = found
    return one


def test_an_approval_holds_for_one_place_and_user_and_is_not_the_clients_to_give(live):
    agent = live.do(live.plane.member(role="member"))
    box = live.client(api_key=agent.token).Sandbox.create(timeout=60)
    other_client = live.do(live.plane.member(role="member"))
    live.client(api_key=other_client.token).Sandbox.connect(box.sandbox_id)
    policy = f"/v1/sandboxes/{identifier(box)}/policy"
    rules = {"rules": [{"name": "echoes wait", "command": "echo **", "verdict": "ask"}]}
    assert live.do(live.plane.admin.call("PUT", policy, rules)).status == 200

    def run(**more: str):
        return box.commands.run("echo asked", **more).stdout

    def answer(who, said: str):
        path = f"/v1/approvals/{pending(live, box)['id']}/answer"
        return live.do(who.post(path, {"answer": said})).status

    try:
        with ThreadPoolExecutor(1) as aside:
            first = aside.submit(run, cwd="/tmp", user="user")
            detail = pending(live, box)["detail"]
            assert (detail["cwd"], detail["user"]) == ("/tmp", "user")
            assert answer(agent, "allowed_task") == 403
            # Nor is it of another that has connected to it: the same token opens it for both.
            assert answer(other_client, "allowed_task") == 403
            assert answer(live.plane.admin, "allowed_task") == 200
            assert first.result(10) == run(cwd="/tmp", user="user") == "asked\n"
            for more in ({"cwd": "/", "user": "user"}, {"cwd": "/tmp", "user": "root"}):
                other = aside.submit(run, **more)
                assert answer(live.plane.admin, "denied") == 200
                with pytest.raises(SandboxException, match="denied"):
                    other.result(10)
    finally:
        box.kill()


@pytest.mark.proves("H8")
async def test_an_access_token_opens_nothing_that_was_set_aside():
    async with disposable(provider=SimulatedProvider) as plane:
        wish = {"templateID": "plain", "timeout": 600, "secure": True}
        made = await plane.admin.post(
            "/v2/sandboxes",
            wish,
            headers={"Host": "api.preview.localhost", "X-API-Key": plane.admin.token},
        )
        assert made.status == 201, made.body
        host, token = f"49983-{made['sandboxID']}.preview.localhost", made["envdAccessToken"]
        own = f"sbx_{made['sandboxID'][3:]}"

        async def listed():
            headers = {"Host": host, "X-Access-Token": token, "Connect-Protocol-Version": "1"}
            return await plane.client("").post("/process.Process/List", headers=headers)

        assert (await listed()).status == 200
        why = {"why": "odd: SEC-42"}
        assert (await plane.admin.call("PUT", f"/v1/quarantine/{own}", why)).status == 200
        assert (await plane.admin.post(f"/v1/sandboxes/{own}/resume")).status == 200
        refused = await listed()
        assert (refused.status, refused["code"]) == (403, 403)
        assert "closed for now" in refused["message"]
        assert "SEC-42" not in refused["message"]
        direct = {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": token}
        asked = json.dumps({"process": {"cmd": "true"}}).encode()
        data = struct.pack("!BI", 0, len(asked)) + asked
        url = f"{plane.url}/process.Process/Start"
        async with plane.session.post(url, data=data, headers=direct) as answer:
            assert b"closed for now" in await answer.read()
        assert (await plane.admin.delete(f"/v1/quarantine/{own}")).status == 200
        assert (await listed()).status == 200
