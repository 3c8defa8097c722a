"""Templates over HTTP."""

import asyncio

import pytest

from paddock.domain.errors import Conflict, NotFound, Refused
from paddock.domain.template import Removed, SourceKind, Template, TemplateSource
from paddock.services.templates import Kept, Told
from tests.control_plane import disposable

BASE = Template("base", TemplateSource(SourceKind.DEBIAN, "trixie", ("git",)))
WISH = {"name": "tools", "source": {"kind": "image", "reference": "debian:13"}, "setup": ["true"]}


class Shelf:
    """The recipes of a provider, in memory; a build of `bad` fails."""

    def __init__(self):
        self.kept = {"base": BASE}
        self.told = Told(lambda _text, _fraction: None)
        self.builds = []
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

    async def prepare(self, name):
        self.builds.append(name)
        self.told("fetching", 0.5)
        if name == "bad":
            raise Refused("the registry said no", remediation="log in to it")
        await self.go_on.wait()
        self.told("ready", 1.0)


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


@pytest.fixture
async def shelf(plane):
    made = Shelf()
    plane.services.providers.templates["reference"] = Kept(made, made.prepare, made.told)
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
