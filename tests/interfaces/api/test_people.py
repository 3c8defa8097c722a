"""People of a team: they come in by a link, have keys of their own, and leave with all of them."""

import asyncio
from dataclasses import dataclass
from http.cookies import SimpleCookie

import aiohttp
import pytest

from paddock.domain.audit import AuditEntry, first_break
from paddock.ports.store import Page
from paddock.settings import ServerConfig, Settings
from tests.control_plane import Client, disposable


@dataclass
class Browser:
    """Somebody who has signed in: a cookie, and what a page of ours knows of it."""

    client: Client
    cookie: str
    csrf: str

    async def call(self, method, path, body=None, **headers):
        headers = {"cookie": self.cookie, **headers}
        return await self.client.call(method, path, body, headers=headers)

    async def write(self, method, path, body=None):
        return await self.call(method, path, body, **{"x-paddock-csrf": self.csrf})


async def sign_in(plane, **wanted):
    answer = await plane.client("").post("/v1/session", wanted)
    assert answer.status == 201, answer.body
    (name, morsel), *more = SimpleCookie(answer.headers["set-cookie"]).items()
    assert not more
    return Browser(plane.client(""), f"{name}={morsel.value}", answer["csrf"]), answer, morsel


async def add(plane, name, **wanted):
    answer = await plane.admin.post("/v1/people", {"name": name, **wanted})
    assert answer.status == 201, answer.body
    return answer.body


@pytest.mark.proves("U4")
async def test_somebody_comes_in_by_a_link_that_opens_once(plane):
    ada = await add(plane, "Ada", email="Ada@Example.org", role="member")
    assert ada["email"] == "ada@example.org"
    link = ada["invitation"]["link"]
    assert ada["invitation"]["url"].endswith(f"/signin#{link}")
    browser, answer, cookie = await sign_in(plane, link=link)
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    assert answer["holder"] == ada["id"]
    me = await browser.call("GET", "/v1/me")
    assert (me["person"]["name"], me["role"]) == ("Ada", "member")
    assert me["actor"] == f"{ada['id']}/{answer['id']}"
    second = await plane.client("").post("/v1/session", {"link": link})
    assert second.status == 401
    assert "used already" in second.error["message"]
    audit = (await plane.admin.get("/v1/audit?limit=500"))["items"]
    assert [e["subject"] for e in audit if e["action"] == "session.refuse"] == [ada["id"]]


async def test_of_many_who_use_one_link_at_once_one_comes_in(plane):
    link = (await add(plane, "Many"))["invitation"]["link"]
    answers = await asyncio.gather(
        *(plane.client("").post("/v1/session", {"link": link}) for _ in range(8))
    )
    assert sorted(answer.status for answer in answers) == [201] + [401] * 7


@pytest.mark.proves("U4")
async def test_a_wrong_an_expired_and_a_half_copied_link_open_nothing(plane):
    person = await add(plane, "Late")
    made = await plane.admin.post(f"/v1/people/{person['id']}/links", {"lifetime_s": 1})
    identifier, _, secret = made["link"].partition(".")
    await asyncio.sleep(1.05)
    for wrong in (made["link"], f"{identifier}.{secret[:-1]}x", identifier, "x" * 100):
        answer = await plane.client("").post("/v1/session", {"link": wrong})
        assert (answer.status, answer.error["code"]) == (401, "unauthenticated"), wrong
    for body in ({}, {"link": "a", "token": "b"}):
        assert (await plane.client("").post("/v1/session", body)).status == 400


async def test_a_cookie_alone_reads_and_does_not_write(plane):
    browser, _, _ = await sign_in(plane, token=plane.admin.token)
    assert (await browser.call("GET", "/v1/sandboxes")).status == 200
    forged = await browser.call("POST", "/v1/teams", {"name": "forged"})
    assert (forged.status, forged.error["code"]) == (403, "forbidden")
    wrong = await browser.call("POST", "/v1/teams", {"name": "forged"}, **{"x-paddock-csrf": "x"})
    assert wrong.status == 403
    right = {"x-paddock-csrf": browser.csrf}
    foreign = {**right, "origin": "https://evil.example"}
    assert (await browser.call("POST", "/v1/teams", {"name": "forged"}, **foreign)).status == 403
    own = {**right, "origin": plane.url}
    assert (await browser.call("POST", "/v1/teams", {"name": "meant"}, **own)).status == 201
    again = await browser.call("GET", "/v1/session")
    assert again["csrf"] == browser.csrf
    assert again.headers["cache-control"] == "no-store"


async def test_another_sites_page_neither_signs_in_nor_opens_a_terminal(plane, box):
    headers = {"origin": "https://evil.example"}
    body = {"token": plane.admin.token}
    assert (await plane.client("").post("/v1/session", body, headers=headers)).status == 403
    browser, _, _ = await sign_in(plane, token=plane.admin.token)
    url = plane.url.replace("http", "ws") + f"/v1/sandboxes/{box['id']}/terminal?cmd=cat"
    opened = {"cookie": browser.cookie, "origin": plane.url}
    async with plane.session.ws_connect(url, headers=opened) as socket:
        assert "started" in (await socket.receive_json(timeout=10))
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await plane.session.ws_connect(url, headers={**opened, "origin": "https://evil.example"})
    assert refused.value.status == 403


async def test_without_tokens_another_sites_page_changes_nothing():
    async with disposable(auth=False) as plane:
        anyone = plane.client("")
        evil = {"origin": "https://evil.example"}
        assert (await anyone.post("/v1/teams", {"name": "x"}, headers=evil)).status == 403
        assert (await anyone.post("/v1/teams", {"name": "x"})).status == 201


async def test_behind_https_the_cookie_cannot_be_set_by_another_host():
    public = "https://paddock.example"
    settings = Settings(server=ServerConfig(public_url=public))
    async with disposable(settings=settings) as plane:
        browser, _, cookie = await sign_in(plane, token=plane.admin.token)
        assert browser.cookie.startswith("__Host-paddock_session=")
        assert cookie["secure"]
        assert (await browser.call("GET", "/v1/session")).status == 200
        tossed = browser.cookie.removeprefix("__Host-")
        answer = await plane.client("").get("/v1/session", headers={"cookie": tossed})
        assert answer.status == 401
        own = {"x-paddock-csrf": browser.csrf, "origin": public}
        assert (await browser.call("DELETE", "/v1/session", **own)).status == 204
        person = await add(plane, "Ada")
        assert person["invitation"]["url"].startswith(f"{public}/signin#lnk_")


@pytest.mark.proves("U4")
async def test_signing_out_ends_the_session_and_a_token_has_none(plane):
    browser, answer, _ = await sign_in(plane, token=plane.admin.token)
    out = await browser.write("DELETE", "/v1/session")
    assert out.status == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert (await browser.call("GET", "/v1/me")).status == 401
    listed = (await plane.admin.get("/v1/sessions"))["items"]
    assert next(s for s in listed if s["id"] == answer["id"])["ended_at"]
    assert (await plane.admin.get("/v1/session")).status == 404
    assert (await plane.admin.delete("/v1/session")).status == 404


@pytest.mark.proves("U4")
async def test_people_see_and_end_their_own_sessions_admins_everybodys(plane):
    people = [await add(plane, name) for name in ("One", "Two")]
    browsers = [await sign_in(plane, link=p["invitation"]["link"]) for p in people]
    (one, _, _), (two, other, _) = browsers
    seen = await one.call("GET", "/v1/sessions")
    assert {s["holder"] for s in seen["items"]} == {people[0]["id"]}
    assert (await one.write("DELETE", f"/v1/sessions/{other['id']}")).status == 404
    assert (await two.call("GET", "/v1/me")).status == 200
    assert (await plane.admin.delete(f"/v1/sessions/{other['id']}")).status == 200
    assert (await plane.admin.delete(f"/v1/sessions/{other['id']}")).status == 200
    assert (await two.call("GET", "/v1/me")).status == 401


@pytest.mark.proves("U4")
async def test_a_session_ends_with_its_token_and_has_no_more_than_it(plane):
    made = await plane.admin.post("/v1/tokens", {"name": "ro", "scopes": ["sandboxes:read"]})
    browser, answer, _ = await sign_in(plane, token=made["token"])
    assert answer["token_id"] == made["id"]
    assert (await browser.write("POST", "/v1/sandboxes", {"template": "plain"})).status == 403
    await plane.admin.delete(f"/v1/tokens/{made['id']}")
    plane.services.sessions.forget_all()  # as after the few seconds for which it is trusted
    assert (await browser.call("GET", "/v1/sandboxes")).status == 401


@pytest.mark.proves("U4")
async def test_a_persons_keys_are_their_own_and_end_when_they_leave(plane):
    eve = await add(plane, "Eve", email="eve@example.org")
    browser, _, _ = await sign_in(plane, link=eve["invitation"]["link"])
    made = await browser.write("POST", "/v1/tokens", {"name": "laptop"})
    assert (made.status, made["person_id"]) == (201, eve["id"])
    given = await plane.admin.post("/v1/tokens", {"name": "desk", "person": "eve@example.org"})
    eves = [plane.client(made["token"]), plane.client(given["token"])]
    for each in eves:
        assert (await each.get("/v1/me"))["person"]["id"] == eve["id"]
    listed = await browser.call("GET", "/v1/tokens")
    assert {t["id"] for t in listed["items"]} == {made["id"], given["id"]}
    await eves[0].get("/v1/sandboxes")

    left = await plane.admin.delete("/v1/people/eve@example.org")
    assert left["removed_at"]
    for answer in [
        *[await each.get("/v1/me") for each in eves],
        await browser.call("GET", "/v1/me"),
    ]:
        assert answer.status == 401
    tokens = await plane.admin.get(f"/v1/tokens?person={eve['id']}")
    assert [bool(t["revoked_at"]) for t in tokens["items"]] == [True, True]
    assert (await plane.admin.delete(f"/v1/people/{eve['id']}")).status == 200
    assert (await plane.admin.post(f"/v1/people/{eve['id']}/links", {})).status == 409


async def test_nobody_becomes_more_than_they_are(plane):
    viewer = await add(plane, "Viewer", role="viewer")
    browser, _, _ = await sign_in(plane, link=viewer["invitation"]["link"])
    for wanted in (
        {"name": "up", "role": "admin"},
        {"name": "up", "role": "viewer", "scopes": ["sandboxes:write"]},
    ):
        assert (await browser.write("POST", "/v1/tokens", wanted)).status == 400
    other = await add(plane, "Other")
    refused = await browser.write("POST", "/v1/tokens", {"name": "x", "person": other["id"]})
    assert refused.status == 403
    assert (await browser.call("GET", "/v1/people")).status == 403
    assert (await browser.call("GET", f"/v1/people/{other['id']}")).status == 403
    assert (await browser.write("POST", f"/v1/people/{other['id']}/links", {})).status == 403
    assert (await browser.write("POST", "/v1/people/me/links", {})).status == 201
    above = {"name": "t", "role": "admin", "person": viewer["id"]}
    assert (await plane.admin.post("/v1/tokens", above)).status == 400
    # A narrow key makes neither wider ones nor links that would open everything.
    narrow = await plane.admin.post(
        "/v1/tokens", {"name": "n", "role": "admin", "scopes": ["people:manage"]}
    )
    holder = plane.client(narrow["token"])
    assert (await holder.post("/v1/people", {"name": "A", "role": "admin"})).status == 400
    assert (await holder.post(f"/v1/people/{other['id']}/links", {})).status == 400


async def test_a_new_role_holds_for_what_is_open_already(plane):
    bob = await add(plane, "Bob")
    browser, _, _ = await sign_in(plane, link=bob["invitation"]["link"])
    key = plane.client((await browser.write("POST", "/v1/tokens", {"name": "k"}))["token"])
    assert (await key.get("/v1/me"))["role"] == "member"
    changed = await plane.admin.call("PATCH", f"/v1/people/{bob['id']}", {"role": "viewer"})
    assert changed["role"] == "viewer"
    assert (await browser.call("GET", "/v1/me"))["role"] == "viewer"
    assert (await key.get("/v1/me"))["role"] == "viewer"
    assert (await key.post("/v1/sandboxes", {"template": "plain"})).status == 403


@pytest.mark.proves("U5")
async def test_the_audit_log_shows_the_person_until_they_are_forgotten(plane):
    kim = await add(plane, "Kim", role="member", email="kim@example.org")
    browser, _, _ = await sign_in(plane, link=kim["invitation"]["link"])
    made = await browser.write("POST", "/v1/sandboxes", {"template": "plain"})
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}")

    async def acts():
        items = (await plane.admin.get("/v1/audit?limit=500"))["items"]
        return [e for e in items if e["person"] and e["person"]["id"] == kim["id"]]

    found = await acts()
    assert {"session.begin", "sandbox.create"} <= {e["action"] for e in found}
    assert {e["person"]["name"] for e in found} == {"Kim"}
    forgotten = await plane.admin.delete(f"/v1/people/{kim['id']}?forget=true")
    assert (forgotten["name"], forgotten["email"]) == ("", "")
    assert {e["person"]["name"] for e in await acts()} == {""}
    chain = await plane.services.store.read(lambda tx: tx.audit.after(0, 10_000))
    assert first_break(chain) is None
    assert "Kim" not in str([AuditEntry.__repr__(e) for e in chain if e.action[:6] == "person"])


async def test_links_and_sessions_long_over_are_forgotten(plane):
    browser, answer, _ = await sign_in(plane, token=plane.admin.token)
    store, housekeeping = plane.services.store, plane.rounds.housekeeping
    await housekeeping.look()
    assert await store.read(lambda tx: tx.sessions.get(answer["id"])) is not None
    team = (await plane.admin.get("/v1/me"))["team"]["id"]
    await store.write(lambda tx: tx.sessions.prune(2e9, 1000))
    assert await store.read(lambda tx: tx.sessions.list(team, Page())) == []
    plane.services.sessions.forget_all()
    assert (await browser.call("GET", "/v1/me")).status == 401
