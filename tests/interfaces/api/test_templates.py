"""Templates over HTTP."""

import asyncio
from dataclasses import replace

import pytest

from paddock.domain.errors import Conflict, NotFound, Refused
from paddock.domain.template import Removed, SourceKind, Template, TemplateSource
from paddock.services.following import Step
from paddock.services.provider_templates import Kept, Told
from paddock.services.template_builds import is_news
from tests.control_plane import disposable

BASE = Template("base", TemplateSource(SourceKind.DEBIAN, "trixie", ("git",)))
WISH = {"name": "tools", "source": {"kind": "image", "reference": "debian:13"}, "setup": ["true"]}


class Shelf:
    """The recipes of a provider, in memory; a build of `bad` fails."""

    def __init__(self):
        self.kept = {"base": BASE}
        self.told = Told(lambda _text, _fraction: None)
        self.builds = []
        self.built = {"base"}
        self.go_on = asyncio.Event()

    def recipe(self, name):
        if name not in self.kept:
            raise NotFound(f"there is no template {name}")
        return self.kept[name]

    def recipes(self):
        return list(self.kept.values())

    def add(self, template):
        self.kept[template.name] = template

    async def discard(self, name):
        self.recipe(name)
        if name == "used":
            raise Conflict("the template 'used' is in use by sandbox 1")
        del self.kept[name]
        return [Removed("0" * 32, 1024)]

    async def prune(self, *, everything):
        return [Removed("1" * 32, 2048)] if everything else []

    async def image_bytes(self, reference):
        return None

    async def prune_images(self, needed, before):
        return []

    async def prepare(self, name, _image_mib):
        self.builds.append(name)
        self.told("fetching", 0.5)
        if name == "bad":
            raise Refused("the registry said no", remediation="log in to it")
        await self.go_on.wait()
        self.told("ready", 1.0)
        self.built.add(name)

    async def is_built(self, name):
        self.recipe(name)
        return name in self.built


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


@pytest.fixture
async def shelf(plane):
    made = Shelf()
    plane.services.providers.templates["reference"] = Kept(made, made.prepare, made.is_built)
    yield made
    made.go_on.set()
    plane.services.providers.templates.clear()


async def test_templates_are_added_shown_replaced_and_removed(plane, shelf):
    added = await plane.admin.post("/v1/templates", WISH)
    assert added.status == 201, added.body
    assert (added["source"]["kind"], added["setup"], added["user"]) == ("image", ["true"], "user")
    listed = await plane.admin.get("/v1/templates?provider=reference")
    assert [item["name"] for item in listed["items"]] == ["base", "tools"]
    changed = await plane.admin.post("/v1/templates", {**WISH, "setup": ["false"]})
    assert changed["digest"] != added["digest"]
    assert (await plane.admin.get("/v1/templates/tools"))["setup"] == ["false"]
    assert (await plane.admin.delete("/v1/templates/tools")).status == 204
    gone = await plane.admin.get("/v1/templates/tools")
    assert (gone.status, bool(gone.error["remediation"])) == (404, True)
    assert (await plane.admin.delete("/v1/templates/tools")).status == 404
    audit = (await plane.admin.get("/v1/audit?limit=500"))["items"]
    assert {"template.add", "template.removed"} <= {entry["action"] for entry in audit}


async def test_a_build_is_followed_by_all_who_ask_and_goes_on_without_them(plane, shelf):
    first = plane.admin.lines("POST", "/v1/templates/base/build?format=ndjson")
    assert (await anext(first))["text"] == "fetching"
    await first.aclose()
    second = plane.admin.lines("POST", "/v1/templates/base/build?format=ndjson")
    assert (await anext(second))["text"] == "fetching", "what was told before is told again"
    shelf.go_on.set()
    messages = await asyncio.wait_for(_all(second), 20)
    assert messages[-1] == {"type": "built", "template": "base"}
    assert {"type": "progress", "text": "ready", "fraction": 1.0} in messages
    assert shelf.builds == ["base"]
    kinds = [event["kind"] for event in (await plane.admin.get("/v1/events?subject=base"))["items"]]
    assert kinds == ["template.built"]


async def _all(lines):
    return [line async for line in lines]


async def test_a_build_that_fails_says_why(plane, shelf):
    shelf.kept["bad"] = Template("bad", TemplateSource(SourceKind.IMAGE, "x:y"))
    messages = await _all(plane.admin.lines("POST", "/v1/templates/bad/build?format=ndjson"))
    assert (messages[-1]["type"], messages[-1]["code"]) == ("error", "provider_refused")
    assert messages[-1]["remediation"] == "log in to it"
    missing = await plane.admin.post("/v1/templates/never/build")
    assert missing.status == 404


async def test_other_teams_see_templates_and_change_none(plane, shelf):
    """A recipe may name a directory of the host."""
    stranger = await plane.team("builders")
    assert (await stranger.get("/v1/templates")).status == 200
    host = {"name": "host", "source": {"kind": "directory", "reference": "/etc"}}
    for answer in (
        await stranger.post("/v1/templates", host),
        await stranger.delete("/v1/templates/base"),
        await stranger.post("/v1/templates/base/build"),
    ):
        assert (answer.status, answer.error["code"]) == (403, "forbidden")
    snapshot = {"name": "s", "source": {"kind": "snapshot", "reference": "no-such"}}
    assert (await plane.admin.post("/v1/templates", snapshot)).status == 404


@pytest.mark.parametrize(
    "wish",
    [
        {**WISH, "name": "Not A Name"},
        {**WISH, "source": {"kind": "floppy", "reference": "a"}},
        {**WISH, "source": {"kind": "image", "reference": ""}},
        {**WISH, "unknown": 1},
        {"name": "x"},
    ],
    ids=str,
)
async def test_a_recipe_that_makes_no_sense_is_refused(plane, shelf, wish):
    answer = await plane.admin.post("/v1/templates", wish)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert answer.error["remediation"]


async def test_a_provider_without_templates_says_so(plane):
    for method, path in (
        ("GET", "/v1/templates"),
        ("GET", "/v1/templates/base"),
        ("DELETE", "/v1/templates/base"),
        ("POST", "/v1/templates/base/build"),
    ):
        answer = await plane.admin.call(method, path)
        assert (answer.status, answer.error["code"]) == (501, "unsupported")
        assert answer.error["remediation"]
    assert (await plane.admin.get("/v1/templates?provider=nowhere")).status == 404


async def test_a_template_in_use_is_a_conflict_and_stays(plane, shelf):
    await plane.admin.post("/v1/templates", {**WISH, "name": "used"})
    refused = await plane.admin.delete("/v1/templates/used")
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert "in use by sandbox 1" in refused.error["message"]
    assert (await plane.admin.get("/v1/templates/used")).status == 200


async def test_builds_that_nobody_needs_are_pruned_and_told(plane, shelf):
    assert (await plane.admin.post("/v1/templates/prune"))["items"] == []
    pruned = await plane.admin.post("/v1/templates/prune?everything=true")
    assert pruned["items"] == [{"digest": "1" * 32, "freed_bytes": 2048}]
    told = await plane.admin.get("/v1/events?subject=" + "1" * 32)
    assert [event["kind"] for event in told["items"]] == ["template.removed"]


async def test_templates_of_the_installation_are_listed_for_e2b_clients(plane, shelf):
    shelf.add(PLAIN)
    listed = (await plane.admin.get("/templates")).body
    assert {each["templateID"] for each in listed} == {"base", "plain"}
    assert all(each["buildStatus"] == "ready" for each in listed)
    assert {
        each["name"]: each["built"] for each in (await plane.admin.get(TEMPLATES))["items"]
    } == {
        "base": True,
        "plain": False,
    }


TEMPLATES = "/v1/templates"
PLAIN = Template("plain", TemplateSource(SourceKind.DIRECTORY, "/srv/plain"))


async def followed(plane, sandbox):
    """The events of a sandbox until it runs or is gone."""
    path = f"/v1/events/stream?subject={sandbox}&after=0&format=ndjson"
    async for event in plane.admin.lines("GET", path):
        yield event
        if event["kind"] in ("sandbox.running", "sandbox.deleted"):
            return


async def test_a_creation_answers_early_and_its_events_tell_how_the_build_goes(plane, shelf):
    shelf.add(PLAIN)
    wish = {"template": "plain", "name": "slow", "answer_after_s": 0.1}
    early = await plane.admin.post("/v1/sandboxes", wish)
    assert (early.status, early["state"], early["name"]) == (202, "creating", "slow")
    events = followed(plane, early["id"])
    heard = [await anext(events), await anext(events)]
    assert [each["kind"] for each in heard] == ["sandbox.creating", "sandbox.progress"]
    assert (heard[1]["data"]["text"], heard[1]["data"]["fraction"]) == ("fetching", 0.5)
    shelf.go_on.set()
    rest = [each["kind"] async for each in events]
    assert rest == ["sandbox.progress", "sandbox.running"]
    assert (await plane.admin.get("/v1/sandboxes/slow"))["state"] == "running"
    again = await plane.admin.post("/v1/sandboxes", {**wish, "name": "quick", "answer_after_s": 30})
    assert (again.status, again["state"]) == (201, "running"), "it is built now"
    assert shelf.builds == ["plain"]


async def test_two_creations_follow_one_build(plane, shelf):
    shelf.add(PLAIN)
    wish = {"template": "plain", "answer_after_s": 0.1}
    made = [await plane.admin.post("/v1/sandboxes", wish) for _ in range(2)]
    shelf.go_on.set()
    for each in made:
        kinds = [event["kind"] async for event in followed(plane, each["id"])]
        assert kinds.count("sandbox.progress") == 2
        assert kinds[-1] == "sandbox.running"
    assert shelf.builds == ["plain"]


async def test_removing_a_sandbox_that_is_being_created_cancels_the_creation(plane, shelf):
    shelf.add(PLAIN)
    waiting = asyncio.create_task(
        plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "unwanted"})
    )
    while not shelf.builds:
        await asyncio.sleep(0.01)
    gone = await plane.admin.delete("/v1/sandboxes/unwanted")
    assert (gone.status, gone["state"], gone["reason"]) == (200, "deleted", "cancelled")
    told = await waiting
    assert (told.status, told.error["code"]) == (409, "conflict")
    assert "unwanted was removed while it was being created" in told.error["message"]
    audit = (await plane.admin.get(f"/v1/audit?subject={gone['id']}"))["items"]
    assert "sandbox.delete" in [each["action"] for each in audit]
    shelf.go_on.set()
    free = await plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "unwanted"})
    assert free.status == 201, "the name is free"
    assert shelf.builds == ["plain", "plain"], "the first one was cancelled"


async def test_a_build_goes_on_while_another_creation_waits_for_it(plane, shelf):
    shelf.add(PLAIN)
    wish = {"template": "plain", "answer_after_s": 0.1}
    unwanted, wanted = [await plane.admin.post("/v1/sandboxes", wish) for _ in range(2)]
    assert (await plane.admin.delete(f"/v1/sandboxes/{unwanted['id']}")).status == 200
    shelf.go_on.set()
    kinds = [event["kind"] async for event in followed(plane, wanted["id"])]
    assert kinds[-1] == "sandbox.running"
    assert shelf.builds == ["plain"]


async def test_a_build_that_fails_is_told_with_its_error(plane, shelf):
    shelf.add(replace(PLAIN, name="bad"))
    wish = {"template": "bad", "answer_after_s": 30}
    failed = await plane.admin.post("/v1/sandboxes", wish)
    assert (failed.status, failed.error["message"]) == (502, "the registry said no")
    events = (await plane.admin.get("/v1/events?kind=sandbox.failed"))["items"]
    error = events[-1]["data"]["error"]
    assert (error["code"], error["remediation"]) == ("provider_refused", "log in to it")


def test_only_a_new_stage_or_a_tenth_more_is_worth_an_event():
    half = Step("fetching", 0.5)
    assert is_news(None, half)
    assert not is_news(half, Step("fetching", 0.55))
    assert is_news(half, Step("fetching", 0.6))
    assert not is_news(half, Step("fetching", None))
    assert is_news(half, Step("unpacking", 0.5))
