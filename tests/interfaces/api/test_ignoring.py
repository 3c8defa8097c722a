"""What snapshots leave out, over HTTP: set with the template, shown with the snapshot."""

from dataclasses import replace

import pytest

from paddock.domain.errors import Broken, NotFound
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.services.provider_templates import Kept
from paddock.testing.checkpointing import CheckpointingProvider
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable

PLAIN = Template("plain", TemplateSource(SourceKind.DIRECTORY, "/nowhere"))
WHOLE = {"applied": False, "left_out": [], "left_out_count": 0, "left_out_bytes": 0}


class Recipes:
    """Of one template, in memory."""

    def __init__(self):
        self.kept = {"plain": PLAIN}
        self.fault = None

    def recipe(self, name):
        if self.fault:
            raise self.fault
        if name not in self.kept:
            raise NotFound(f"there is no template {name}")
        return self.kept[name]

    def recipes(self):
        return list(self.kept.values())

    def add(self, template):
        self.kept[template.name] = template


class Unable(SimulatedProvider):
    """Can leave nothing out."""

    @property
    def capabilities(self):
        return replace(super().capabilities, snapshot_ignore=False)


async def nothing(_name):
    return None


def shelve(plane, name):
    made = Recipes()
    plane.services.providers.templates[name] = Kept(made, nothing)
    return made


@pytest.fixture(scope="module")
async def plane():
    async with disposable(provider=CheckpointingProvider) as made:
        yield made


@pytest.fixture
async def recipes(plane):
    return shelve(plane, plane.services.providers.default)


async def sh(plane, box, script):
    ran = await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["sh", "-c", script]})
    assert (ran.status, ran["exit_code"]) == (200, 0), ran.body
    return ran["stdout"].strip()


async def made(plane, **wish):
    answer = await plane.admin.post("/v1/sandboxes", wish or {"template": "plain"})
    assert answer.status == 201, answer.body
    return answer.body


async def gone(plane, *boxes):
    for box in boxes:
        await plane.admin.delete(f"/v1/sandboxes/{box['id']}?force=true")


@pytest.fixture
async def box(plane, recipes):
    """With rules for a cache and temporary files, and a source directory of the same name."""
    box = await made(plane)
    script = "mkdir -p out src/out; echo x > out/x; echo work > src/out/w; echo t > a.tmp; pwd"
    home = await sh(plane, box, script)
    rules = [f"{home}/out", f"{home}/*.tmp"]
    changed = await plane.admin.call("PATCH", "/v1/templates/plain", {"snapshot_ignore": rules})
    assert (changed.status, changed["snapshot_ignore"]) == (200, rules), changed.body
    yield {**box, "home": home, "rules": rules}
    await gone(plane, box)


async def take(plane, box, **wish):
    answer = await plane.admin.post(f"/v1/sandboxes/{box['id']}/snapshots", wish)
    assert answer.status == 201, answer.body
    return answer.body


FILES = "find . -type f -not -path './.*' | LC_ALL=C sort | tr '\\n' ' '"
ALL = "./a.tmp ./out/x ./src/out/w"


@pytest.mark.proves("N1")
async def test_a_snapshot_goes_by_the_rules_and_says_what_is_missing(plane, box):
    taken = await take(plane, box, name="without")
    wanted = {
        "rules": box["rules"],
        "applied": True,
        "whole_because": None,
        "left_out": [f"{box['home']}/out", f"{box['home']}/a.tmp"],
        "left_out_count": 2,
    }
    assert taken["ignore"].pop("left_out_bytes") > 0
    assert taken["ignore"] == wanted
    shown = (await plane.admin.get("/v1/snapshots/without"))["ignore"]
    assert shown.pop("left_out_bytes") > 0
    assert shown == wanted
    assert await sh(plane, box, FILES) == ALL
    copy = await made(plane, snapshot=taken["id"])
    assert await sh(plane, copy, FILES) == "./src/out/w"
    events = (await plane.admin.get(f"/v1/events?subject={taken['id']}"))["items"]
    assert events[0]["data"]["left_out"] == 2
    again = await take(plane, copy)
    assert again["ignore"]["rules"] == box["rules"], "a copy has its template's rules"
    await gone(plane, copy)


async def test_everything_is_taken_when_it_is_asked_for(plane, box):
    taken = await take(plane, box, everything=True)
    assert taken["ignore"] == WHOLE | {"rules": box["rules"], "whole_because": "asked"}
    copy = await made(plane, snapshot=taken["id"])
    assert await sh(plane, copy, FILES) == ALL
    await gone(plane, copy)


@pytest.mark.proves("N5", "N3")
async def test_what_paddock_keeps_before_a_restore_holds_everything(plane, box):
    taken = await take(plane, box)
    restored = await plane.admin.post(
        f"/v1/sandboxes/{box['id']}/restore", {"snapshot": taken["id"]}
    )
    assert restored.status == 200, restored.body
    assert await sh(plane, box, FILES) == "./src/out/w"
    listed = (await plane.admin.get(f"/v1/snapshots?sandbox={box['id']}"))["items"]
    (kept,) = [each for each in listed if each["automatic"]]
    assert kept["ignore"] == WHOLE | {"rules": box["rules"], "whole_because": "automatic"}
    await plane.admin.post(f"/v1/sandboxes/{box['id']}/restore", {"snapshot": kept["id"]})
    assert await sh(plane, box, FILES) == ALL


@pytest.mark.proves("N4")
async def test_a_fork_has_everything(plane, box):
    fork = await plane.admin.post(f"/v1/sandboxes/{box['id']}/fork")
    assert await sh(plane, fork, FILES) == ALL
    await gone(plane, fork)


async def test_memory_comes_with_all_its_files(plane, box):
    taken = await take(plane, box, memory=True)
    assert taken["ignore"] == WHOLE | {"rules": box["rules"], "whole_because": "memory"}


async def test_the_same_key_with_another_wish_is_a_conflict(plane, box):
    path, key = f"/v1/sandboxes/{box['id']}/snapshots", {"Idempotency-Key": "once"}
    first = await plane.admin.post(path, {}, headers=key)
    # The rules may have changed since: what was begun by the old ones is that snapshot.
    await plane.admin.call("PATCH", "/v1/templates/plain", {"snapshot_ignore": []})
    again = await plane.admin.post(path, {}, headers=key)
    assert (again["id"], again["ignore"]) == (first["id"], first["ignore"])
    other = await plane.admin.post(path, {"everything": True}, headers=key)
    assert (other.status, other.error["code"]) == (409, "conflict")


@pytest.mark.proves("N1")
@pytest.mark.parametrize("fault", [NotFound("gone"), Broken("not readable")], ids=lambda f: f.code)
async def test_a_template_that_says_nothing_loses_nothing(plane, recipes, box, fault):
    recipes.fault = fault
    taken = await take(plane, box)
    assert taken["ignore"] == WHOLE | {"rules": [], "whole_because": None}


async def test_rules_are_set_shown_and_changed_with_the_template(plane, recipes):
    source = {"kind": "image", "reference": "debian:13"}
    wish = {"name": "tools", "source": source, "snapshot_ignore": ["/var/cache/apt/archives/*"]}
    added = await plane.admin.post("/v1/templates", wish)
    assert (added.status, added["snapshot_ignore"]) == (201, wish["snapshot_ignore"])
    listed = (await plane.admin.get("/v1/templates"))["items"]
    assert [each["snapshot_ignore"] for each in listed] == [[], wish["snapshot_ignore"]]
    path, change = "/v1/templates/tools", {"snapshot_ignore": ["/home/user/.cache"]}
    changed = await plane.admin.call("PATCH", path, change)
    assert changed.body == {**added.body, **change}, "the digest is the same: nothing is built anew"
    assert (await plane.admin.get(path)).body == changed.body
    assert (await plane.admin.call("PATCH", "/v1/templates/never", change)).status == 404
    audit = (await plane.admin.get("/v1/audit?limit=500"))["items"]
    assert "template.ignore" in {entry["action"] for entry in audit}
    stranger = await plane.team("rulers")
    refused = await stranger.call("PATCH", path, change)
    assert (refused.status, refused.error["code"]) == (403, "forbidden")


@pytest.mark.proves("N1")
@pytest.mark.parametrize(
    ("rule", "found", "remedy"),
    [
        ("out", "does not say where", "/home/user/out"),
        ("/**/out", "before its last part", "one rule for each directory"),
        ("/home/user", "where the work is", "/home/user/.cache"),
        ("/", "no plain path", "realpath"),
    ],
)
async def test_a_rule_that_could_lose_work_is_refused(plane, recipes, rule, found, remedy):
    source = {"kind": "image", "reference": "debian:13"}
    for answer in (
        await plane.admin.call("PATCH", "/v1/templates/plain", {"snapshot_ignore": [rule]}),
        await plane.admin.post(
            "/v1/templates", {"name": "x", "source": source, "snapshot_ignore": [rule]}
        ),
    ):
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert found in answer.error["message"]
        assert remedy in answer.error["remediation"]
    assert recipes.kept == {"plain": PLAIN}


@pytest.mark.proves("N1")
async def test_a_provider_that_leaves_nothing_out_takes_everything_and_it_is_shown():
    async with disposable(provider=Unable) as plane:
        recipes = shelve(plane, plane.services.providers.default)
        box = await made(plane)
        home = await sh(plane, box, "mkdir out; echo x > out/x; pwd")
        recipes.kept["plain"] = replace(PLAIN, snapshot_ignore=(f"{home}/out",))
        taken = await take(plane, box)
        wanted = WHOLE | {"rules": [f"{home}/out"], "whole_because": "provider"}
        assert taken["ignore"] == wanted
        await gone(plane, box)
