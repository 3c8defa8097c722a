"""How the installation is: health, providers, and the series for Prometheus."""

import asyncio

import pytest

from paddock.domain.errors import Unavailable
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable


class Moody(ReferenceProvider):
    """Answers, or does not."""

    away = False
    asked = 0

    async def check(self):
        self.asked += 1
        if self.away:
            raise Unavailable("nobody is at home")
        return await super().check()


async def test_providers_tell_how_they_are(plane):
    answer = await plane.admin.get("/v1/providers")
    assert answer.status == 200
    (provider,) = answer["items"]
    assert (provider["name"], provider["default"], provider["usable"]) == ("reference", True, True)
    assert 0 <= provider["latency_s"] < 10
    assert provider["last_error"] is None
    assert provider["capabilities"]["stop"] is True
    assert {finding["name"] for finding in provider["findings"]} == {"python", "isolation"}


@pytest.mark.proves("I4")
async def test_a_provider_that_is_away_makes_the_server_unready_and_is_asked_now_and_then():
    made = []

    def provider(place):
        made.append(Moody(place))
        return made[-1]

    async with disposable(provider=provider) as plane:
        assert (await plane.admin.get("/readyz")).status == 200
        before = made[0].asked
        await asyncio.gather(*(plane.admin.get("/v1/providers") for _ in range(20)))
        assert made[0].asked == before
        made[0].away = True
        plane.services.health._asked.clear()
        unready = await plane.admin.get("/readyz")
        assert unready.status == 503
        assert unready["problems"] == {"provider reference": "nobody is at home"}
        made[0].away = False
        plane.services.health._asked.clear()
        assert (await plane.admin.get("/readyz")).status == 200
        (shown,) = (await plane.admin.get("/v1/providers"))["items"]
        assert (shown["usable"], shown["last_error"]["message"]) == (True, "nobody is at home")


@pytest.mark.proves("I5")
async def test_the_series_tell_of_requests_calls_sandboxes_events_and_lag(plane, box):
    await plane.admin.get("/v1/sandboxes/no-such-thing")
    series = (await plane.admin.get("/metrics")).body.decode()
    route = 'route="/v1/sandboxes/{sandbox}"'
    assert f'paddock_http_requests_total{{method="GET",{route},status="404"}}' in series
    assert "no-such-thing" not in series
    call = 'provider="reference"'
    assert f'paddock_provider_calls_total{{operation="create",outcome="ok",{call}}}' in series
    assert f'paddock_provider_call_seconds_count{{operation="create",{call}}}' in series
    assert 'paddock_sandboxes{state="running"} 1.0' in series
    assert 'paddock_events_written_total{kind="sandbox.running"}' in series
    assert "paddock_event_loop_lag_seconds" in series


async def test_only_operators_see_the_series(plane):
    stranger = await plane.team("curious")
    refused = await stranger.get("/metrics")
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert (await plane.client("").get("/metrics")).status == 401


async def test_a_narrow_token_of_the_operators_sees_no_series(plane):
    """Issue: /metrics readable with narrow tokens."""
    narrow = await plane.member(role="member", scopes=["sandboxes:read", "events:read"])
    refused = await narrow.get("/metrics")
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert "settings:read" in refused.error["message"]
    reader = await plane.member(role="viewer", scopes=["settings:read"])
    assert (await reader.get("/metrics")).status == 200
