"""Settings over HTTP."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.domain.lifetime import ARCHIVE_AFTER_S, IDLE_TIMEOUT_S
from paddock.domain.team import Principal, Role, Scope
from paddock.services.settings import SettingsAtWork
from paddock.settings import Settings, keys
from paddock.wiring.configured import configured
from tests.control_plane import disposable, running

EVERY_DATABASE = True


def shown(answer):
    return {item["key"]: item for item in answer["items"]}


async def patch(client, **body):
    return await client.call("PATCH", "/v1/settings", body)


@pytest.mark.proves("G1")
async def test_everything_in_effect_is_shown_with_its_source():
    settings = Settings(server=replace(Settings().server, requests_burst=77.0))
    settings = replace(settings, docker=replace(settings.docker))
    async with disposable(settings=settings) as plane:
        found = shown(await plane.admin.get("/v1/settings"))
        assert {key for key, _ in keys()} <= set(found)
        assert found["server.requests_burst"] == {
            "key": "server.requests_burst",
            "value": 77.0,
            "source": "configuration",
            "hot": True,
        }
        assert (found["server.host"]["source"], found["server.host"]["hot"]) == ("default", False)
        assert found["lifetime.idle_timeout_s"]["value"] == IDLE_TIMEOUT_S


@pytest.mark.parametrize(
    ("url", "shown_as"),
    [
        (
            "postgresql://paddock:hunter2@db.example/paddock",
            "postgresql://paddock@db.example/paddock",
        ),
        ("postgresql://h/db?user=u&password=hunter2", "postgresql://h/db"),
        ("postgresql://u:p@hunter2@h/db", "postgresql://u@h/db"),
        ("/var/lib/paddock/paddock.db", "/var/lib/paddock/paddock.db"),
    ],
)
def test_the_database_is_shown_without_its_password(url, shown_as):
    server = replace(Settings().server, database=url)
    found = {each.key: each.value for each in configured(Settings(server=server))}
    assert found["server.database"] == shown_as


@pytest.mark.parametrize(
    ("url", "shown_as"),
    [
        ("https://u:p@hunter2@h:4318/v1", "https://***@h:4318/v1"),
        ("https://hunter2@h/v1", "https://***@h/v1"),
        ("https://h/v1?token=hunter2&b=hunter2#c=hunter2", "https://h/v1?token=***&b=***#c=***"),
        ("https://h:80/@me", "https://h:80/@me"),
    ],
)
async def test_no_secret_of_any_other_url_is_shown(url, shown_as):
    telemetry = replace(Settings().telemetry, otlp_endpoint=url)
    known = configured(Settings(telemetry=telemetry))
    at_work = SettingsAtWork(None, None, known, [])
    reader = Principal("tem_1", "tok_1", Role.ADMIN, frozenset(Scope), operator=True)
    found = {each.key: each.value for each in await at_work.list(reader)}
    assert found["telemetry.otlp_endpoint"] == shown_as
    assert "hunter2" not in repr(found)


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="pd-") as made:
        yield Path(made)


@pytest.mark.proves("G2")
async def test_what_is_changed_takes_effect_at_once_is_audited_and_outlives_a_restart(place):
    async with running(place) as plane:
        values = {"lifetime.idle_timeout_s": 60, "server.reap_every_s": 1.5, "log.level": "error"}
        answer = await patch(plane.admin, values=values)
        assert answer.status == 200, answer.body
        assert plane.rounds.reaper.every_s == 1.5
        made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
        assert made["lifetime"]["idle_timeout_s"] == 60
        await plane.admin.delete(f"/v1/sandboxes/{made['id']}")
        audit = (await plane.admin.get("/v1/audit?limit=500"))["items"]
        noted = {e["subject"]: e["detail"] for e in audit if e["action"] == "settings.change"}
        assert noted["lifetime.idle_timeout_s"] == {"value": 60.0}
    async with running(place) as plane:
        found = shown(await plane.admin.get("/v1/settings"))
        assert found["lifetime.idle_timeout_s"]["source"] == "run_time"
        assert plane.rounds.reaper.every_s == 1.5
        answer = await patch(plane.admin, reset=["server.reap_every_s", "log.level"])
        assert shown(answer)["server.reap_every_s"]["source"] == "default"
        assert plane.rounds.reaper.every_s == 5.0


async def test_one_thing_said_of_a_lifetime_leaves_the_other_defaults_in_force(place):
    """Who only sets a deadline must not get a sandbox that idles for ever."""
    async with running(place) as plane:
        made = await plane.admin.post(
            "/v1/sandboxes", {"template": "plain", "lifetime": {"timeout_s": 300}}
        )
        lifetime = made["lifetime"]
        assert lifetime["timeout_s"] == 300
        assert lifetime["idle_timeout_s"] == IDLE_TIMEOUT_S
        assert lifetime["archive_after_s"] == ARCHIVE_AFTER_S
        values = {"lifetime.idle_timeout_s": 60, "lifetime.timeout_s": 500}
        assert (await patch(plane.admin, values=values)).status == 200
        wish = {"template": "plain", "lifetime": {"archive_after_s": None, "on_timeout": "pause"}}
        second = await plane.admin.post("/v1/sandboxes", wish)
        assert second["lifetime"] == {
            "timeout_s": 500,
            "on_timeout": "pause",
            "idle_timeout_s": 60,
            "archive_after_s": None,
            "always_on": False,
        }
        path = f"/v1/sandboxes/{second['id']}"
        changed = await plane.admin.call("PATCH", path, {"lifetime": {"idle_timeout_s": None}})
        assert changed["lifetime"] == {**second["lifetime"], "idle_timeout_s": None}
        for each in (made, second):
            await plane.admin.delete(f"/v1/sandboxes/{each['id']}")


async def test_a_rate_limit_holds_from_the_next_request_on():
    async with disposable() as plane:
        member = await plane.member()
        await patch(
            plane.admin,
            values={"server.requests_per_second": 0.5, "server.requests_burst": 5},
        )
        answers = await asyncio.gather(*(member.get("/v1/me") for _ in range(20)))
        assert [a.status for a in answers].count(429) >= 14


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"values": {"server.request_per_second": 1}}, "did you mean server.requests_per_second?"),
        ({"values": {"server.port": 80}}, "only when the server starts"),
        ({"values": {"server.reap_every_s": 0}}, "server.reap_every_s"),
        ({"values": {"server.reap_every_s": "often"}}, "server.reap_every_s"),
        ({"values": {"server.reap_every_s": True}}, "server.reap_every_s"),
        ({"values": {"server.reap_every_s": None}}, "server.reap_every_s"),
        ({"values": {"log.level": "loud"}}, "log.level"),
        ({"reset": ["nothing"]}, "there is no setting"),
        ({"unknown": 1}, "unknown"),
    ],
    ids=str,
)
async def test_what_cannot_be_is_refused_and_changes_nothing(plane, body, says):
    body.setdefault("values", {})
    if "reset" not in body:
        body["values"]["retention.events_s"] = 7200
    answer = await plane.admin.call("PATCH", "/v1/settings", body)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert says in answer.error["message"]
    assert answer.error["remediation"]
    found = shown(await plane.admin.get("/v1/settings"))
    assert found["retention.events_s"]["source"] == "default"


async def test_only_operators_change_settings(plane):
    stranger = await plane.team("tinkerers")
    assert (await stranger.get("/v1/settings")).status == 200
    member = await plane.member()
    for client in (stranger, member):
        refused = await patch(client, values={"log.level": "debug"})
        assert (refused.status, refused.error["code"]) == (403, "forbidden")


@pytest.mark.proves("G1")
async def test_only_the_operating_team_sees_what_is_the_installations(plane):
    """What another team sees is named one by one, so that a new setting is the operators' until
    somebody decides otherwise."""
    operators = shown(await plane.admin.get("/v1/settings"))
    tenant = await plane.team("tenants")
    for role in ("admin", "viewer"):
        token = await tenant.post("/v1/tokens", {"name": "t", "role": role})
        found = shown(await plane.client(token["token"]).get("/v1/settings"))
        assert set(found) == {
            "files.excluded",
            "files.max_text_kib",
            "files.max_upload_mib",
            "lifetime.archive_after_s",
            "lifetime.idle_timeout_s",
            "lifetime.timeout_s",
            "retention.deleted_sandboxes_s",
            "retention.events_s",
            "retention.keys_s",
            "retention.tasks_s",
            "server.events_burst",
            "server.events_per_second",
            "server.preview_domain",
            "server.public_url",
            "server.requests_burst",
            "server.requests_per_second",
            "server.ssh_public",
            "snapshots.before_delete",
            "snapshots.idle_after_s",
            "snapshots.kept_s",
            "snapshots.most",
        }
        assert all(operators[key] == each for key, each in found.items())
    assert {"server.data_dir", "server.database", "docker.host", "log.level"} <= set(operators)
    refused = await patch(tenant, values={"lifetime.idle_timeout_s": 60})
    assert refused.status == 403
