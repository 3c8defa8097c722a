"""Configuration of apps, and how it gets into their sandboxes."""

import pytest

from tests.control_plane import running

SECRET = "swordfish-of-the-deep"


async def put(client, name, app="", **wish):
    answer = await client.call("PUT", f"/v1/secrets/{name}?app={app}", wish)
    assert answer.status == 200, answer.body
    return answer


async def variables(plane, box):
    ran = await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["env"]})
    assert ran.status == 200, ran.body
    return dict(line.partition("=")[::2] for line in ran["stdout"].splitlines())


async def make(plane, **wish):
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain", **wish})
    assert made.status == 201, made.body
    return made.body


@pytest.mark.proves("K1")
async def test_an_app_has_its_own_values_beside_the_teams(plane):
    await put(plane.admin, "COLOUR", value="blue", sensitive=False)
    made = await put(plane.admin, "COLOUR", "shop", value="red", sensitive=False)
    assert made["app"] == "shop"
    assert (await plane.admin.get("/v1/secrets/COLOUR?app=shop"))["value"] == "red"
    assert (await plane.admin.get("/v1/secrets/COLOUR"))["value"] == "blue"
    listed = (await plane.admin.get("/v1/secrets?app=shop"))["items"]
    assert [(each["name"], each["app"]) for each in listed] == [("COLOUR", "shop")]
    other = await plane.team("shop-strangers")
    assert (await other.get("/v1/secrets/COLOUR?app=shop")).status == 404
    assert (await plane.admin.delete("/v1/secrets/COLOUR?app=shop")).status == 204
    assert (await plane.admin.get("/v1/secrets/COLOUR?app=shop")).status == 404
    assert (await plane.admin.get("/v1/secrets/COLOUR"))["value"] == "blue"
    assert (await plane.admin.delete("/v1/secrets/COLOUR")).status == 204
    bad = await plane.admin.call("PUT", "/v1/secrets/X?app=No%20App", {"value": "x"})
    assert (bad.status, bad.error["code"]) == (400, "invalid_request")


@pytest.mark.proves("K3")
async def test_only_what_may_go_there_is_in_an_apps_environment(plane):
    for policy in ("control_plane_only", "agent_access", "runtime_access", "both"):
        await put(plane.admin, policy.upper(), "site", value=policy, policy=policy)
    await put(plane.admin, "TEAMWIDE", value="t", policy="both")
    await put(plane.admin, "BOTH_SET", value="team", policy="both")
    await put(plane.admin, "BOTH_SET", "site", value="app", policy="both")
    await put(plane.admin, "KEPT_BACK", value="team", policy="both")
    await put(plane.admin, "KEPT_BACK", "site", value="app", policy="control_plane_only")
    await put(plane.admin, "not-a.variable", "site", value="x", policy="both")
    box = await make(plane, app="site", env={"OWN": "mine", "TEAMWIDE": "mine too"})
    found = await variables(plane, box)
    names = ("CONTROL_PLANE_ONLY", "AGENT_ACCESS", "RUNTIME_ACCESS", "BOTH", "KEPT_BACK")
    assert [found.get(name) for name in names] == [None, None, "runtime_access", "both", None]
    assert (found["OWN"], found["TEAMWIDE"], found["BOTH_SET"]) == ("mine", "mine too", "app")
    assert "not-a.variable" not in found
    assert box["app"] == "site"
    assert box["env_names"] == ["OWN", "TEAMWIDE"]
    for app in ("", "elsewhere"):
        without = await make(plane, app=app)
        assert "RUNTIME_ACCESS" not in await variables(plane, without)
        await plane.admin.delete(f"/v1/sandboxes/{without['id']}")
    await plane.admin.delete(f"/v1/sandboxes/{box['id']}")


@pytest.mark.proves("K1", "K3")
async def test_no_flag_lets_a_sensitive_value_go_where_it_could_be_read(plane):
    """Who may run a command in a sandbox reads its environment."""
    await put(plane.admin, "DEEP", "vault", value=SECRET)
    path = "/v1/secrets/DEEP?app=vault"
    for policy in ("agent_access", "runtime_access", "both"):
        refused = await plane.admin.call("PUT", path, {"policy": policy})
        assert (refused.status, refused.error["code"]) == (409, "conflict")
        assert "give the value again" in refused.error["remediation"]
    box = await make(plane, app="vault")
    assert "DEEP" not in await variables(plane, box)
    await plane.admin.delete(f"/v1/sandboxes/{box['id']}")
    # Who knows the value may send it where they like, and it may always be drawn back.
    await put(plane.admin, "DEEP", "vault", value=SECRET, policy="both")
    await put(plane.admin, "DEEP", "vault", policy="agent_access")
    assert (await plane.admin.call("PUT", path, {"policy": "runtime_access"})).status == 409


@pytest.mark.proves("K2")
async def test_a_value_in_a_sandbox_is_in_no_record_and_there_again_after_a_start(tmp_path):
    async with running(tmp_path) as plane:
        await put(plane.admin, "DEEP", "vault", value=SECRET, policy="runtime_access")
        box = await make(plane, app="vault")
        path = f"/v1/sandboxes/{box['id']}"
        assert (await variables(plane, box))["DEEP"] == SECRET
        shown = await plane.admin.get(path)
        assert SECRET not in str(shown.body)
        assert shown["exposed_secrets"] == ["DEEP"], "its name is all that is shown of it"
        for file in (plane.place / "data").iterdir():
            if file.is_file():
                assert SECRET.encode() not in file.read_bytes(), file.name
        assert (await plane.admin.post(f"{path}/stop")).status == 200
        await put(plane.admin, "DEEP", "vault", value="another")
        assert (await plane.admin.post(f"{path}/start")).status == 200
        assert (await variables(plane, box))["DEEP"] == "another"
        await plane.admin.delete(path)
