"""Secrets over HTTP."""

import logging

import pytest

EVERY_DATABASE = True

VALUE = "hunter2-is-what-nobody-may-read"


async def put(client, name, **wish):
    return await client.call("PUT", f"/v1/secrets/{name}", wish)


@pytest.mark.proves("K1")
async def test_a_sensitive_value_is_never_read_again_whatever_is_changed(plane):
    admin = plane.admin
    made = await put(admin, "API_KEY", value=VALUE)
    assert made.status == 200
    assert (made["version"], made["sensitive"], made["policy"]) == (1, True, "control_plane_only")
    assert (await admin.get("/v1/secrets/API_KEY"))["value"] is None
    refused = await put(admin, "API_KEY", sensitive=False)
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert "new value" in refused.error["remediation"]
    assert (await put(admin, "API_KEY", policy="agent_access")).status == 409
    await put(admin, "API_KEY", value=VALUE, policy="both")
    changed = await put(admin, "API_KEY", policy="agent_access")
    assert (changed["version"], changed["policy"]) == (2, "agent_access")
    again = await admin.get("/v1/secrets/API_KEY")
    assert (again["value"], again["sensitive"]) == (None, True)
    # A new value is the caller's own, so it may be readable.
    await put(admin, "API_KEY", value="mine", sensitive=False)
    shown = await admin.get("/v1/secrets/API_KEY")
    assert (shown["value"], shown["version"]) == ("mine", 3)
    await put(admin, "API_KEY", sensitive=True)
    assert (await admin.get("/v1/secrets/API_KEY"))["value"] is None
    assert (await admin.delete("/v1/secrets/API_KEY")).status == 204
    assert (await admin.delete("/v1/secrets/API_KEY")).status == 404


@pytest.mark.proves("K2", "K9")
async def test_a_value_is_in_no_log_event_audit_entry_or_file(plane, caplog):
    caplog.set_level(logging.DEBUG)
    # Paddock's log goes to its own handler once it is set up.
    for name in ("paddock", "sqlalchemy", "aiosqlite"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    await put(plane.admin, "DEEP", value=VALUE)
    await put(plane.admin, "DEEP", value=VALUE, policy="nonsense")
    await put(plane.admin, "not a name", value=VALUE)
    await plane.admin.get("/v1/secrets/DEEP")
    told = [
        str((await plane.admin.get(path)).body)
        for path in ("/v1/events?limit=500", "/v1/audit?limit=500", "/v1/secrets", "/metrics")
    ]
    assert "secret.set" in told[0]
    for text in (*told, caplog.text):
        assert VALUE not in text
    for file in (plane.place / "data").iterdir():
        if file.is_file():
            assert VALUE.encode() not in file.read_bytes(), file.name
    for name in ("paddock", "sqlalchemy", "aiosqlite"):
        logging.getLogger(name).setLevel(logging.NOTSET)


async def test_secrets_are_listed_by_name_and_belong_to_a_team(plane):
    team = await plane.team("keepers")
    for name in ("C", "A", "B"):
        await put(team, name, value="x")
    first = await team.get("/v1/secrets?limit=2")
    assert [item["name"] for item in first["items"]] == ["A", "B"]
    rest = await team.get(f"/v1/secrets?limit=2&cursor={first['next_cursor']}")
    assert [item["name"] for item in rest["items"]] == ["C"]
    assert all("value" not in item for item in first["items"])
    assert (await plane.admin.get("/v1/secrets/A")).status == 404


async def test_rotation_is_for_operators_and_keeps_every_value(plane):
    for number in range(120):
        await put(plane.admin, f"MANY_{number}", value=f"value {number}", sensitive=False)
    before = (await plane.admin.get("/v1/secrets/MANY_7"))["key_id"]
    stranger = await plane.team("rotators")
    assert (await stranger.post("/v1/secrets/rotate")).status == 403
    rotated = await plane.admin.post("/v1/secrets/rotate")
    assert rotated.status == 200
    assert rotated["resealed"] >= 120
    after = await plane.admin.get("/v1/secrets/MANY_7")
    assert after["key_id"] != before
    assert (after["value"], after["version"]) == ("value 7", 1)


@pytest.mark.parametrize(
    ("name", "wish"),
    [
        ("1BAD", {"value": "x"}),
        ("a|b", {"value": "x"}),
        ("x" * 300, {"value": "x"}),
        ("OK", {"value": "x" * 70_000}),
        ("OK", {"value": "é" * 40_000}),
        ("OK", {"value": "nul\0"}),
        ("OK", {"value": 5}),
        ("OK", {"value": "x", "policy": "everyone"}),
        ("OK", {"value": "x", "unknown": 1}),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused_with_a_way_out(plane, name, wish):
    answer = await put(plane.admin, name, **wish)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request"), answer.body
    assert answer.error["remediation"]


async def test_what_was_never_set_cannot_be_changed(plane):
    assert (await put(plane.admin, "NEVER", policy="both")).status == 404
    viewer = await plane.member(role="viewer")
    assert (await put(viewer, "NEVER", value="x")).status == 403
