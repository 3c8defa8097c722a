"""A provider that limits requests: visitors are told when to come again, and it is left alone."""

import asyncio
import json
from asyncio.subprocess import PIPE

import pytest

from paddock.domain.errors import LimitExceeded
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable
from tests.harness.ports import free_port
from tests.interfaces.api.test_previews import SERVER, Site
from tests.interfaces.cli.conftest import PADDOCK, clean_environment


class Rationed(ReferenceProvider):
    """Allows so many requests of a kind, and says when it allows the next."""

    def __init__(self, place):
        super().__init__(place)
        self.limit = LimitExceeded("10 requests a minute at 10.0.0.7", retry_after_s=40.0)
        self.rationed = set()
        self.asked = []

    def _spend(self, what):
        self.asked.append(what)
        if what in self.rationed:
            raise self.limit

    async def observe(self, ref):
        self._spend("observe")
        return await super().observe(ref)

    async def guest(self, ref):
        self._spend("guest")
        return await super().guest(ref)

    async def endpoint(self, ref, port):
        self._spend("endpoint")
        return await super().endpoint(ref, port)

    async def start(self, ref):
        self._spend("start")
        return await super().start(ref)


@pytest.fixture
async def rationed():
    """A control plane, its provider, and a sandbox in it."""
    made = []

    def provider(place):
        made.append(Rationed(place))
        return made[0]

    async with disposable(provider=provider) as plane:
        box = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
        yield plane, made[0], box


def is_soon(seconds: str) -> bool:
    return 30 <= int(seconds) <= 40


@pytest.mark.proves("V6", "H9")
async def test_a_visitor_is_told_when_to_come_again_and_the_provider_is_left_alone(rationed):
    plane, provider, box = rationed
    site = Site(plane, box, free_port())
    token = {"X-Paddock-Token": plane.admin.token}
    provider.rationed = {"endpoint"}
    provider.asked.clear()
    for _ in range(5):
        status, said, headers = await site.get(**token)
        assert (status, headers["content-type"]) == (429, "application/json")
        assert is_soon(headers["retry-after"])
        error = json.loads(said)["error"]
        assert (error["code"], error["retryable"]) == ("limit_exceeded", True)
        assert "allows no more requests now: 10 requests a minute" in error["message"]
        assert error["remediation"] == f"try again in {headers['retry-after']} s"
    status, page, headers = await site.get(Accept="text/html", **token)
    assert (status, headers["content-type"].partition(";")[0]) == (429, "text/html")
    assert f"try again in {headers['retry-after']} s" in page
    assert provider.asked == ["endpoint"]
    assert (await plane.admin.get(site.path))["state"] == "running"


@pytest.mark.proves("V6")
async def test_who_comes_without_a_token_is_not_told_what_the_provider_said(rationed):
    plane, provider, box = rationed
    site = Site(plane, box, free_port())
    await plane.admin.call("PATCH", site.path, {"public_ports": [site.port]})
    provider.rationed = {"endpoint"}
    status, said, headers = await site.get()
    assert status == 429
    assert is_soon(headers["retry-after"])
    assert "no more requests are allowed now" in said
    assert "10.0.0.7" not in said


@pytest.mark.proves("V6", "H9")
async def test_what_was_found_before_is_shown_on_and_the_rest_when_the_limit_has_ended(rationed):
    plane, provider, box = rationed
    token = {"X-Paddock-Token": plane.admin.token}
    site, other = Site(plane, box, free_port()), Site(plane, box, free_port())
    for each in (site, other):
        wish = {"cmd": ["python3", "-c", SERVER, str(each.port)]}
        await plane.admin.post(f"{each.path}/commands", wish)
    await site.until(200, **token)
    provider.limit = LimitExceeded("one a second", retry_after_s=1.0)
    provider.rationed = {"endpoint"}
    assert (await other.get(**token))[0] == 429
    assert (await site.get(**token))[0] == 200
    provider.rationed = set()
    await other.until(200, **token)


@pytest.mark.proves("V6", "H9")
async def test_a_sandbox_that_may_not_be_woken_now_is_not_dead(rationed):
    plane, provider, box = rationed
    site = Site(plane, box, free_port())
    token = {"X-Paddock-Token": plane.admin.token}
    await plane.admin.post(f"{site.path}/stop")
    provider.rationed = {"start"}
    provider.asked.clear()
    _, said, headers = await site.until(429, **token)
    assert is_soon(headers["retry-after"])
    assert "10 requests a minute" in said
    assert (await site.get(**token))[0] == 429
    assert provider.asked.count("start") == 1
    assert (await plane.admin.get(site.path))["state"] == "stopped"


@pytest.mark.proves("V6", "H9")
async def test_the_api_and_the_command_line_say_the_same(rationed):
    plane, provider, box = rationed
    await plane.services.inside._guests.forget(box["id"])
    provider.rationed = {"guest"}
    provider.asked.clear()
    answer = await plane.admin.get(f"/v1/sandboxes/{box['id']}/ports")
    assert (answer.status, answer.error["code"]) == (429, "limit_exceeded")
    assert is_soon(answer.headers["retry-after"])
    assert "allows no more requests now: 10 requests a minute" in answer.error["message"]
    environment = clean_environment(PADDOCK_URL=plane.url, PADDOCK_TOKEN=plane.admin.token)
    command = [*PADDOCK, "ports", box["name"]]
    asking = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=PIPE, stderr=PIPE
    )
    _, said = await asking.communicate()
    assert asking.returncode == 1
    assert b"allows no more requests now: 10 requests a minute" in said
    assert b"fix: try again in " in said
    assert provider.asked.count("guest") == 1
    assert (await plane.admin.get(f"/v1/sandboxes/{box['id']}"))["state"] == "running"
