"""`/` and `/signin`: the two pages for a browser until the console exists."""

import pytest

from tests.control_plane import disposable
from tests.interfaces.api.test_people import add, sign_in


def check_headers(answer):
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"http://" not in answer.body, "no asset comes from elsewhere"
    assert b"https://" not in answer.body


async def test_the_link_of_an_invitation_leads_to_a_page(plane):
    ada = await add(plane, "Ada")
    address = ada["invitation"]["url"].removeprefix(plane.url)
    page = await plane.client("").get(address.partition("#")[0])
    check_headers(page)
    assert b"v1/session" in page.body


async def test_the_start_page_says_what_runs_and_shows_nothing_of_a_team_to_strangers(plane):
    box = await plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "seen-by-team"})
    assert box.status == 201
    page = await plane.client("").get("/")
    check_headers(page)
    assert b"Running" in page.body
    assert b'href="v1/openapi.json"' in page.body
    assert b'href="signin"' in page.body
    assert b"seen-by-team" not in page.body
    stale = await plane.client("").get("/", headers={"cookie": "paddock_session=ses_gone"})
    assert b'href="signin"' in stale.body


async def test_the_start_page_shows_the_teams_sandboxes_to_who_signed_in(plane):
    ada = await add(plane, "Ada <script>", role="member")
    browser, *_ = await sign_in(plane, link=ada["invitation"]["link"])
    await plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "shown"})
    page = await browser.call("GET", "/")
    check_headers(page)
    assert b"<td>shown<td>running<td>plain" in page.body
    assert b"Ada &lt;script&gt; (member)" in page.body
    assert b"<script>)" not in page.body
    other = await plane.team("others")
    theirs, *_ = await sign_in(plane, token=other.token)
    assert b"shown" not in (await theirs.call("GET", "/")).body


@pytest.mark.proves("U4")
async def test_without_authentication_the_start_page_asks_nobody_to_sign_in():
    async with disposable(auth=False) as plane:
        page = await plane.client("").get("/")
        check_headers(page)
        assert b'href="signin"' not in page.body
