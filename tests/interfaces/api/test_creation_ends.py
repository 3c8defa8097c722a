"""Creations of sandboxes that are cancelled, interrupted or left by their caller."""

import asyncio
import time

import pytest

from paddock.domain.build import Build, BuildState, Family, Left
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.services.build_records import write_family
from paddock.services.provider_templates import Kept
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable, remove_all, running

pytestmark = pytest.mark.timeout(60)


class AnyRecipe:
    """Knows every name."""

    def recipe(self, name):
        return Template(name, TemplateSource(SourceKind.DEBIAN, "bookworm"))


def build_without_end(plane) -> None:
    """Let every template of the provider be built without end."""

    async def prepare(_name, _image_mib):
        await asyncio.sleep(1000)

    async def is_built(_name):
        return False

    name = plane.services.providers.default
    plane.services.providers.templates[name] = Kept(AnyRecipe(), prepare, is_built)


async def add_template(plane, **left) -> dict:
    """Add a team's template; return the request for a sandbox of it."""
    me = await plane.admin.get("/v1/me")
    build = Build("b1", "own", time.time(), ("default",), state=BuildState.READY, left=Left(**left))
    family = Family("own", {"default": "b1"}, {"b1": build})
    await plane.services.store.write(lambda tx: write_family(tx, me["team"]["id"], family))
    return {"template": "plain", "labels": {"paddock.template": "own"}}


async def test_a_creation_that_waits_for_a_build_is_left_to_the_next_start(tmp_path):
    async with running(tmp_path) as plane:
        build_without_end(plane)
        wish = {"template": "plain", "answer_after_s": 0.2}
        made = await plane.admin.post("/v1/sandboxes", wish)
        assert made.status == 202, made.body
    async with running(tmp_path) as plane:
        path = f"/v1/sandboxes/{made['id']}"
        async with asyncio.timeout(20):
            while (seen := await plane.admin.get(path))["state"] == "creating":
                await asyncio.sleep(0.05)
        assert seen["state"] == "running", seen.body
        await remove_all(plane)


async def test_a_cancelled_creation_leaves_no_machine_that_was_about_to_be_ready():
    async with disposable() as plane:
        wish = await add_template(plane, ready="false")
        made = await plane.admin.post("/v1/sandboxes", {**wish, "answer_after_s": 1})
        assert made.status == 202, made.body
        provider = plane.services.providers.get("")
        labels = {"paddock.sandbox": made["id"]}
        async with asyncio.timeout(20):
            while not [each async for each in provider.find(labels)]:
                await asyncio.sleep(0.05)
        gone = await plane.admin.delete(f"/v1/sandboxes/{made['id']}?force=true")
        assert gone.status < 300, gone.body
        assert [each async for each in provider.find(labels)] == []


async def test_memory_is_reserved_until_the_creation_ends():
    async with disposable() as plane:
        build_without_end(plane)
        admission = plane.services.sandboxes._making._admission
        wish = {"template": "plain", "answer_after_s": 0.2}
        made = await plane.admin.post("/v1/sandboxes", wish)
        assert (made.status, admission._reserved_mib > 0) == (202, True)
        await plane.admin.delete(f"/v1/sandboxes/{made['id']}?force=true")
        assert admission._reserved_mib == 0


async def test_start_commands_of_a_template_run_once_however_often_it_is_paused(tmp_path):
    async with disposable(provider=SimulatedProvider) as plane:
        wish = await add_template(plane, start="echo x >> started; sleep 500")
        made = await plane.admin.post("/v1/sandboxes", wish)
        assert made.status == 201, made.body
        path = f"/v1/sandboxes/{made['id']}"
        for verb in ("pause", "resume"):
            answer = await plane.admin.post(f"{path}/{verb}")
            assert answer.status < 300, answer.body
        async with asyncio.timeout(20):
            while not (ran := await started(plane, path)):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert (ran, await started(plane, path)) == ("x\n", "x\n")


async def started(plane, path):
    ran = await plane.admin.post(f"{path}/exec", {"cmd": ["sh", "-c", "cat ~/started"]})
    return ran["stdout"]


async def test_a_token_that_may_only_write_stops_a_sandbox():
    async with disposable() as plane:
        made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
        narrow = await plane.member(scopes=["sandboxes:write"])
        stopped = await narrow.post(f"/v1/sandboxes/{made['id']}/stop")
        assert stopped.status < 300, stopped.body
