"""Which commands may be run, over HTTP."""

import time

import aiohttp
import pytest

from paddock.domain.records import SandboxRecord
from paddock.services.policies import nobody_approves
from tests.control_plane import disposable, running

RULES = {
    "rules": [
        {"name": "no removing", "verdict": "deny", "command": "rm **"},
        {"name": "pushes wait", "verdict": "ask", "command": "git ** push **"},
    ]
}


@pytest.fixture
async def policed(plane):
    """A policy of the operating team, while a test lasts."""
    answer = await plane.admin.call("PUT", "/v1/policy", RULES)
    assert answer.status == 200, answer.body
    policies = plane.services.policies
    policies.approve, before = nobody_approves, policies.approve
    yield
    policies.approve = before
    assert (await plane.admin.delete("/v1/policy")).status == 204


def ways(box):
    """How a command can be started, with the body of each."""
    path = f"/v1/sandboxes/{box['id']}"
    return [f"{path}/exec", f"{path}/exec/stream", f"{path}/commands"]


@pytest.mark.proves("E8")
async def test_a_denied_command_is_refused_however_it_is_started(plane, box, policed):
    for way in ways(box):
        for cmd in (["rm", "x"], ["sh", "-c", "echo a; rm x"], ["env", "rm", "x"]):
            answer = await plane.admin.post(way, {"cmd": cmd})
            assert (answer.status, answer.error["code"]) == (403, "forbidden"), way
            assert "'no removing' of the team's policy" in answer.error["message"]
            assert "an admin of the team" in answer.error["remediation"]
        allowed = await plane.admin.post(way, {"cmd": ["sh", "-c", "echo fine"]})
        assert allowed.status in (200, 201), (way, allowed.body)
    where = plane.url.replace("http", "ws") + f"/v1/sandboxes/{box['id']}/terminal?cmd=rm&cmd=x"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await plane.session.ws_connect(
            where, headers={"authorization": f"Bearer {plane.admin.token}"}
        )
    assert refused.value.status == 403


@pytest.mark.proves("E8")
async def test_what_needs_an_approval_says_so_with_its_own_code(plane, box, policed):
    for way in ways(box):
        answer = await plane.admin.post(way, {"cmd": ["git", "push"]})
        assert (answer.status, answer.error["code"]) == (403, "approval_required")
        assert "'pushes wait'" in answer.error["message"]


@pytest.mark.proves("E8")
async def test_a_denial_is_an_event_and_in_the_audit_without_the_arguments(plane, box, policed):
    await plane.admin.post(ways(box)[0], {"cmd": ["rm", "hunter2"]})
    found = (await plane.admin.get(f"/v1/events?subject={box['id']}&kind=command.denied"))["items"]
    assert found[-1]["data"] == {
        "name": box["name"],
        "verdict": "deny",
        "program": "rm",
        "rule": "no removing",
        "of": "team",
    }
    audit = (await plane.admin.get("/v1/audit?limit=500"))["items"]
    assert any(e["action"] == "command.denied" and e["detail"]["program"] == "rm" for e in audit)
    assert any(e["action"] == "policy.changed" for e in audit)
    assert "hunter2" not in str(audit) + str(found)


@pytest.mark.proves("E8")
async def test_all_policies_that_apply_have_to_agree(plane, box):
    only_echo = {
        "rules": [{"name": "echo", "verdict": "allow", "command": "echo **"}],
        "default": "deny",
    }
    path = f"/v1/sandboxes/{box['id']}"
    assert (await plane.admin.call("PUT", f"{path}/policy", only_echo)).status == 200
    assert (await plane.admin.post(f"{path}/exec", {"cmd": ["ls"]})).status == 403
    assert (await plane.admin.post(f"{path}/exec", {"cmd": ["echo"]})).status == 200
    no_echo = {"rules": [{"name": "quiet", "verdict": "deny", "command": "echo **"}]}
    assert (await plane.admin.call("PUT", "/v1/templates/plain/policy", no_echo)).status == 200
    refused = await plane.admin.post(f"{path}/exec", {"cmd": ["echo"]})
    assert "'quiet' of the template's policy" in refused.error["message"]
    checked = await plane.admin.post(f"{path}/policy/check", {"cmd": ["echo", "x"]})
    assert checked.body == {
        "verdict": "deny",
        "policy": "template",
        "rule": "quiet",
        "program": "echo",
        "why": "it is 'echo **'",
    }
    assert (await plane.admin.get(f"{path}/policy")).body == {**only_echo, "unknown": "deny"}
    assert (await plane.admin.delete("/v1/templates/plain/policy")).status == 204
    assert (await plane.admin.delete(f"{path}/policy")).status == 204
    assert (await plane.admin.post(f"{path}/exec", {"cmd": ["ls"]})).status == 200
    assert (await plane.admin.get(f"{path}/policy")).status == 404


async def test_only_admins_change_a_policy_and_only_operators_a_templates(plane, box):
    member = await plane.member(role="member")
    other = await plane.team("policed-strangers")
    for path in ("/v1/policy", f"/v1/sandboxes/{box['id']}/policy", "/v1/templates/plain/policy"):
        assert (await member.call("PUT", path, RULES)).status == 403
        assert (await member.delete(path)).status == 403
    assert (await other.call("PUT", "/v1/templates/plain/policy", RULES)).status == 403
    assert (await other.call("PUT", f"/v1/sandboxes/{box['id']}/policy", RULES)).status == 404
    assert (await other.call("PUT", "/v1/policy", RULES)).status == 200
    assert (await plane.admin.post(ways(box)[0], {"cmd": ["rm", "x"]})).status == 200


@pytest.mark.parametrize(
    "policy",
    [
        {"unknown": "allow"},
        {"default": "maybe"},
        {"rules": [{"name": "", "verdict": "deny", "command": "x"}]},
        {"rules": [{"name": "a", "verdict": "deny", "command": "'"}]},
        {"rules": [{"name": "a", "verdict": "deny", "command": "x"}] * 2},
        {"rules": [{"name": "a", "verdict": "deny"}]},
        {"ruls": []},
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused(plane, policy):
    answer = await plane.admin.call("PUT", "/v1/policy", policy)
    assert answer.status == 400
    assert answer.error["remediation"]
    assert (await plane.admin.get("/v1/policy")).status == 404


async def test_a_policy_outlives_a_restart(tmp_path):
    async with running(tmp_path) as plane:
        assert (await plane.admin.call("PUT", "/v1/policy", RULES)).status == 200
        box = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
    async with running(tmp_path) as plane:
        assert (await plane.admin.post(ways(box)[0], {"cmd": ["rm", "x"]})).status == 403
        await plane.admin.delete(f"/v1/sandboxes/{box['id']}")


async def test_a_kept_policy_that_is_not_understood_forbids_everything(tmp_path):
    async with running(tmp_path) as plane:
        box = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
        store, policies = plane.services.store, plane.services.policies
        team = (await plane.admin.get("/v1/teams"))["items"][0]["id"]
        await store.write(lambda tx: tx.values.put(f"policy.team.{team}", {"from": "later"}))
        await policies.load()
        assert (await plane.admin.post(ways(box)[0], {"cmd": ["ls"]})).status == 403
        await plane.admin.delete(f"/v1/sandboxes/{box['id']}")


async def test_no_policy_costs_nothing_that_could_be_measured():
    """A thousand checks take less than one command."""
    async with disposable() as plane:
        box = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
        record: SandboxRecord = await plane.services.inside._changes.find("", box["id"])
        check, argv = plane.services.policies.check, ["sh", "-c", "ls"]
        begun = time.perf_counter()
        for _ in range(1000):
            await check(None, record, argv, {})
        thousand = time.perf_counter() - begun
        begun = time.perf_counter()
        await plane.admin.post(ways(box)[0], {"cmd": ["true"]})
        assert thousand < time.perf_counter() - begun
