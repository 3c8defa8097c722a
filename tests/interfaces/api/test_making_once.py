"""What shows a secret, or has no name of its own, is made once for a key as everything else is."""

import asyncio
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.domain.errors import Broken, Conflict
from paddock.domain.team import Role, granted
from paddock.services.ssh_access import AccessWish
from tests.control_plane import remove_all, running

EVERY_DATABASE = True
DAY = 86400.0

TOKEN = ("/v1/tokens", {"name": "ci", "role": "viewer"}, {"name": "ci", "role": "member"})
TEAM = ("/v1/teams", {"name": "makers"}, {"name": "takers"})
PERSON = ("/v1/people", {"name": "Ada", "email": "ada@example.org"}, {"name": "Grace"})
LINK = ("/v1/people/{person}/links", {"lifetime_s": 60}, {"lifetime_s": 61})
SHARE = ("/v1/sandboxes/{sandbox}/ports/3000/links", {"lasts_s": 60}, {"lasts_s": 61})
PURGE = ("/v1/purge", {"owner": "nobody-1"}, {"owner": "nobody-2"})
CREATES = {
    "token": TOKEN,
    "team": TEAM,
    "person": PERSON,
    "link": LINK,
    "share": SHARE,
    "purge": PURGE,
}
ACTIONS = {
    "token": "token.create",
    "team": "team.create",
    "person": "person.add",
    "link": "person.link",
    "share": "preview.share",
    "purge": "owner.purge",
}


def keyed(key):
    return {"headers": {"Idempotency-Key": key}}


@pytest.fixture(scope="module")
async def person(plane):
    return (await plane.admin.post("/v1/people", {"name": "Somebody"})).body["id"]


async def made(plane, action):
    """How often it was done."""
    entries = await plane.services.store.read(lambda tx: tx.audit.after(0, 10_000))
    return sum(entry.action == action for entry in entries)


@pytest.mark.proves("P14")
@pytest.mark.parametrize("what", CREATES)
async def test_the_same_key_is_done_once_and_answered_alike(plane, box, person, what):
    path, body, other = CREATES[what]
    path = path.format(sandbox=box["id"], person=person)
    key, before = f"{what} one", await made(plane, ACTIONS[what])
    answers = await asyncio.gather(
        *(plane.admin.post(path, body, **keyed(key)) for _ in range(6)),
    )
    answers.append(await plane.admin.post(path, body, **keyed(key)))
    assert {answer.status for answer in answers} <= {201, 202}
    told = [answer.body for answer in answers]
    if what == "purge":  # it goes on meanwhile
        told = [purge["id"] for purge in told]
    assert all(each == told[0] for each in told), told
    assert await made(plane, ACTIONS[what]) == before + 1
    refused = await plane.admin.post(path, other, **keyed(key))
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert "was used for another request" in refused.error["message"]
    assert await made(plane, ACTIONS[what]) == before + 1
    unkeyed = await plane.admin.post(path, other)
    assert unkeyed.status in (201, 202)


async def test_a_token_that_comes_again_opens(plane):
    path, body, _ = TOKEN
    first, again = [await plane.admin.post(path, body, **keyed("opens")) for _ in range(2)]
    assert first["token"] == again["token"]
    assert (await plane.client(again["token"]).get("/v1/me")).status == 200


async def test_an_answer_that_shows_a_secret_is_for_nobody_else_who_has_the_key(plane):
    path, body, _ = TOKEN
    mine = await plane.admin.post(path, body, **keyed("mine alone"))
    colleague = await plane.member(role="admin")
    theirs = await colleague.post(path, body, **keyed("mine alone"))
    assert (mine.status, theirs.status) == (201, 409)
    assert mine["token"] not in json.dumps(theirs.body)


async def test_a_narrower_token_of_the_same_person_gets_no_sign_in_link_of_an_admin(plane):
    me = (await plane.admin.post("/v1/people", {"name": "Root", "role": "admin"}))["id"]
    wide = await plane.member(role="admin", person=me)
    wish = {"name": "reads", "role": "viewer", "person": me}
    narrow = plane.client((await wide.post("/v1/tokens", wish))["token"])
    path, body, _ = LINK
    path = path.format(person="me")
    link = await wide.post(path, body, **keyed("the admin's way in"))
    assert link.status == 201, link.body
    alone = await narrow.post(path, body)
    assert alone.status == 400, "it may not make one itself"
    repeated = await narrow.post(path, body, **keyed("the admin's way in"))
    assert repeated.status == 409
    assert link["link"].partition(".")[2] not in json.dumps(repeated.body)


async def test_who_has_become_an_admin_is_not_let_in_by_who_may_less(plane, person):
    """The rights are looked at again when a request comes again."""
    scopes = ["people:manage", *sorted(granted(Role.MEMBER, operator=True))]
    wish = {"name": "desk", "role": "admin", "scopes": scopes}
    desk = plane.client((await plane.admin.post("/v1/tokens", wish))["token"])
    path, body, _ = LINK
    path = path.format(person=person)
    assert (await desk.post(path, body, **keyed("desk"))).status == 201
    await plane.admin.call("PATCH", f"/v1/people/{person}", {"role": "admin"})
    try:
        refused = await desk.post(path, body, **keyed("desk"))
        assert (refused.status, "link" in refused.body) == (400, False), refused.body
    finally:
        await plane.admin.call("PATCH", f"/v1/people/{person}", {"role": "member"})
    assert (await desk.post(path, body, **keyed("desk"))).status == 201


async def revoke_token(plane, box, answer):
    await plane.admin.delete(f"/v1/tokens/{answer['id']}")


async def remove_person(plane, box, answer):
    await plane.admin.delete(f"/v1/people/{answer['id']}")


async def use_link(plane, box, answer):
    assert (await plane.client("").post("/v1/session", {"link": answer["link"]})).status == 201


async def end_links(plane, box, answer):
    await plane.admin.delete(f"/v1/sandboxes/{box['id']}/links")


@pytest.mark.parametrize(
    ("what", "end"),
    [
        ("token", revoke_token),
        ("person", remove_person),
        ("link", use_link),
        ("share", end_links),
    ],
)
async def test_what_holds_no_longer_does_not_come_again(plane, box, person, what, end):
    path, body, _ = CREATES[what]
    path, body = path.format(sandbox=box["id"], person=person), dict(body)
    if what == "person":
        body["email"] = "ended@example.org"
    key, before = keyed(f"{what} ended"), await made(plane, ACTIONS[what])
    first = await plane.admin.post(path, body, **key)
    assert (await plane.admin.post(path, body, **key)).body == first.body
    await end(plane, box, first)
    again = await plane.admin.post(path, body, **key)
    assert (again.status, again.error["code"]) == (409, "conflict"), again.body
    assert "was removed, revoked or used" in again.error["message"]
    assert await made(plane, ACTIONS[what]) == before + 1
    assert (await plane.admin.post(path, body, **keyed(f"{what} anew"))).status == 201


async def test_a_way_in_by_ssh_that_was_revoked_does_not_come_again(plane, box):
    admin = await plane.services.access.authenticate(plane.admin.token)
    accesses, wish = plane.services.ssh.accesses, AccessWish(reveal=True)
    access, *_ = await accesses.create(admin, box["id"], wish, "ssh ended")
    await accesses.revoke(admin, box["id"], access.id)
    with pytest.raises(Conflict, match="was removed, revoked or used"):
        await accesses.create(admin, box["id"], wish, "ssh ended")


@pytest.mark.proves("P14")
async def test_what_fails_leaves_the_key_free(plane):
    path, *_ = TEAM
    assert (await plane.admin.post(path, {"name": "twice"})).status == 201
    refused = await plane.admin.post(path, {"name": "twice"}, **keyed("for a team"))
    assert refused.status == 409
    assert (await plane.admin.post(path, {"name": "third"}, **keyed("for a team"))).status == 201


async def test_a_way_in_by_ssh_comes_again_with_its_token(plane, box):
    admin = await plane.services.access.authenticate(plane.admin.token)
    create, wish = plane.services.ssh.accesses.create, AccessWish(reveal=True)
    first, again = [await create(admin, box["id"], wish, "ssh") for _ in range(2)]
    assert (first[0], first[2]) == (again[0], again[2])
    with pytest.raises(Conflict):
        await create(admin, box["id"], replace(wish, user="root"), "ssh")


async def test_a_purge_comes_again_as_it_is_by_then(plane):
    box = (await plane.admin.post("/v1/sandboxes", {"template": "plain", "owner": "late"})).body
    body, key = {"owner": "late"}, keyed("late")
    begun = await plane.admin.post("/v1/purge", body, **key)
    async with asyncio.timeout(30):
        while (await plane.admin.get(f"/v1/purges/{begun['id']}"))["state"] == "running":
            await asyncio.sleep(0.05)
    again = await plane.admin.post("/v1/purge", body, **key)
    assert (again.status, again["id"], again["state"]) == (202, begun["id"], "done")
    assert (await plane.admin.get(f"/v1/sandboxes/{box['id']}")).status == 404


async def stored(plane):
    """All that is kept for keys, as text."""
    query = "SELECT * FROM idempotency_key"
    return await plane.services.store.read(
        lambda tx: repr(tx._connection.exec_driver_sql(query).all())
    )


async def test_the_database_alone_shows_no_secret_and_no_answer_fits_another_key(plane):
    path, body, other = TOKEN
    first = await plane.admin.post(path, body, **keyed("first"))
    second = await plane.admin.post(path, other, **keyed("second"))
    kept = await stored(plane)
    assert first["id"] in kept
    for answer in (first, second):
        assert answer["token"].partition(".")[2] not in kept
    store, team = plane.services.store, first["team_id"]
    one, two = await store.read(
        lambda tx: (tx.keys.answer(team, "first"), tx.keys.answer(team, "second"))
    )
    await store.write(lambda tx: tx.keys.keep(replace(two, sealed=one.sealed)))
    moved = await plane.admin.post(path, other, **keyed("second"))
    assert moved.status == 502, "it does not open there"
    assert moved.error["code"] == Broken.code
    await store.write(lambda tx: tx.keys.keep(two))
    assert (await plane.admin.post(path, other, **keyed("second"))).body == second.body


async def test_an_answer_that_does_not_open_is_dropped_when_keys_are_rotated(plane):
    path, body, other = TOKEN
    first = await plane.admin.post(path, body, **keyed("spoilt"))
    sound = await plane.admin.post(path, other, **keyed("sound"))
    store, team = plane.services.store, first["team_id"]
    kept = await store.read(lambda tx: tx.keys.answer(team, "spoilt"))
    spoilt = replace(kept, sealed=f"{kept.sealed[:-8]}AAAAAAA=")
    await store.write(lambda tx: tx.keys.keep(spoilt))
    rotated = await plane.admin.post("/v1/secrets/rotate")
    assert rotated.status == 200, rotated.body
    assert (await plane.admin.post(path, other, **keyed("sound"))).body == sound.body
    again = await plane.admin.post(path, body, **keyed("spoilt"))
    assert (again.status, again["id"] == first["id"]) == (201, False)


async def test_who_is_forgotten_is_forgotten_with_the_answer(plane):
    path, body = "/v1/people", {"name": "Erika", "email": "erika@example.org"}
    added = await plane.admin.post(path, body, **keyed("erikas"))
    assert added["id"] in await stored(plane)
    await plane.admin.delete(f"/v1/people/{added['id']}?forget=true")
    assert added["id"] not in await stored(plane)


async def test_an_answer_goes_with_its_key(plane):
    path, body, _ = TOKEN
    first = await plane.admin.post(path, body, **keyed("short-lived"))
    housekeeping = plane.rounds.housekeeping
    await housekeeping.look()
    assert (await plane.admin.post(path, body, **keyed("short-lived"))).body == first.body
    assert housekeeping.retention.keys_s == DAY
    housekeeping.retention = replace(housekeeping.retention, keys_s=-1.0)
    try:
        await housekeeping.look()
    finally:
        housekeeping.retention = replace(housekeeping.retention, keys_s=DAY)
    assert first["id"] not in await stored(plane)
    assert (await plane.admin.post(path, body, **keyed("short-lived")))["id"] != first["id"]


@pytest.mark.proves("P14")
async def test_it_comes_again_after_a_restart_and_a_rotation(empty_database):
    place = Path(tempfile.mkdtemp(prefix="pd-"))
    path, body, _ = TOKEN
    wish = {**body, "scopes": ["sandboxes:read", "events:read", "tokens:own"]}
    try:
        async with running(place, database=empty_database) as plane:
            first = await plane.admin.post(path, wish, **keyed("lasting"))
            assert first.status == 201, first.body
        async with running(place, database=empty_database) as plane:
            try:
                assert (await plane.admin.post("/v1/secrets/rotate")).status == 200
                assert (place / "data" / "master-key").read_text().count("\n") == 1
                again = await plane.admin.post(path, wish, **keyed("lasting"))
                assert (again.status, again.body) == (201, first.body)
            finally:
                await remove_all(plane)
    finally:
        shutil.rmtree(place, ignore_errors=True)
