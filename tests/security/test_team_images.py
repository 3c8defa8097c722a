"""Images that members name: they count against their team's quota, and do not pile up.

Issue: quotas per team; any member of any team gets root on the host (size limits).
"""

import os
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.ports.provider import Provider
from paddock.services.provider_templates import Kept
from paddock.services.team_images import TeamImages
from paddock.testing.clock import ManualClock
from paddock.wiring.shelf import Shelf
from tests import image_registry
from tests.control_plane import Client, Plane, disposable
from tests.engines import local_config
from tests.image_registry import Image, member

pytestmark = pytest.mark.timeout(120)
DISK = 100
IMAGE = Image.of(
    [
        member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644),
        member("srv/large", os.urandom(8 << 20), mode=0o644),
    ]
)


WITHOUT_PROC = Image.of(
    [
        member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644),
        member("proc", b"not a directory", mode=0o644),
        member("srv/large", os.urandom(8 << 20), mode=0o644),
    ]
)


@dataclass
class World:
    plane: Plane
    kept: Kept
    reference: str

    async def create(self, team: Client) -> Any:
        resources = {"cpus": 1, "memory_mib": 64, "disk_mib": DISK}
        wish = {"template": self.reference, "resources": resources}
        return await team.post("/v1/sandboxes", wish)

    async def limited(self, name: str, disk_mib: int) -> Client:
        team = await self.plane.team(name)
        await self.limit(name, disk_mib)
        return team

    async def limit(self, name: str, disk_mib: int) -> None:
        path = f"/v1/teams/{name}/quota"
        answer = await self.plane.admin.call("PATCH", path, {"disk_mib": disk_mib})
        assert answer.status == 200, answer.body

    async def used(self, name: str) -> float:
        answer = await self.plane.admin.get(f"/v1/teams/{name}/quota")
        return next(each["used"] for each in answer["limits"] if each["name"] == "disk_mib")


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    config, opened = local_config(), []
    image = getattr(request, "param", IMAGE)
    with (
        tempfile.TemporaryDirectory() as place,
        image_registry.registry(Path(place), image) as registry,
    ):
        where = f"127.0.0.1:{registry.port}"
        egress = EgressConfig(registries=(where,), certificates=str(registry.certificate))

        async def provider(_root: Path) -> Provider:
            opened.append(await LocalProvider.open(config, egress=egress))
            return opened[0]

        async with disposable(provider=provider) as plane:
            local = opened[0]
            shelf = Shelf(local.templates, config, DockerConfig())

            async def is_built(name: str) -> bool:
                return local.templates.built(local.templates.resolve(name)) is not None

            kept = Kept(shelf, local.prepare, is_built)
            plane.services.providers.templates[local.name] = kept
            registry.hold.set()
            yield World(plane, kept, registry.by_address)


async def test_images_count_against_the_quota_of_each_team_that_names_them(world: World) -> None:
    team = await world.limited("one", DISK + 4)
    refused = await world.create(team)
    assert (refused.status, refused.error["code"]) == (429, "quota_exceeded"), refused.body
    assert "disk_mib" in refused.error["message"]
    assert "operator" in refused.error["remediation"]
    assert (await team.get("/v1/sandboxes"))["items"] == []
    assert await world.kept.recipes.image_bytes(world.reference) is None, "nothing of it remains"
    await world.limit("one", 2 * DISK + 60)
    made = [await world.create(team) for _ in range(2)]
    assert [each.status for each in made] == [201, 201], [each.body for each in made]
    assert 2 * DISK + 8 <= await world.used("one") < 2 * DISK + 16, "it counts once"
    other = await world.limited("two", DISK + 4)
    refused = await world.create(other)
    assert (refused.status, refused.error["code"]) == (429, "quota_exceeded"), refused.body
    assert await world.used("two") == 0
    for each in made:
        await team.delete(f"/v1/sandboxes/{each['id']}?force=true")


async def test_an_image_that_nobody_uses_is_removed_after_a_week(world: World) -> None:
    team = await world.limited("one", 1000)
    made = await world.create(team)
    assert made.status == 201, made.body
    services = world.plane.services
    later = ManualClock(time.time() + 8 * 86400)
    images = TeamImages(services.store, later, services.providers)
    await images.look()
    assert await world.kept.recipes.image_bytes(world.reference), "a sandbox stands on it"
    assert await world.used("one") > DISK
    await team.delete(f"/v1/sandboxes/{made['id']}?force=true")
    await images.look()
    assert await world.kept.recipes.image_bytes(world.reference), "it was used just now"
    again = ManualClock(later.wall() + 8 * 86400)
    await TeamImages(services.store, again, services.providers).look()
    assert await world.kept.recipes.image_bytes(world.reference) is None
    assert await world.used("one") == 0


@pytest.mark.parametrize("world", [WITHOUT_PROC], indirect=True)
async def test_an_image_counts_also_when_no_sandbox_can_be_created_of_it(world: World) -> None:
    """Otherwise images that do not start fill the disk, and no quota says so."""
    team = await world.limited("one", DISK + 100)
    refused = await world.create(team)
    assert refused.status >= 400, refused.body
    assert await world.used("one") >= 8
