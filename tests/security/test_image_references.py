"""What a member of a team that runs nothing here can reach by naming an image.

Issue: any member of any team gets root on the host.
"""

import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.ports.provider import Provider
from tests import image_registry
from tests.adapters.providers.docker.conftest import (  # noqa: F401 - fixtures by name
    Installation,
    base_image,
    engine_host,
    source,
)
from tests.control_plane import Client, Plane, disposable
from tests.engines import DATA, local_config
from tests.image_registry import Registry

FORMS = (
    "oci:{path}",
    "oci:{path}:latest",
    "oci-archive:{path}",
    "docker-archive:{path}",
    "docker-daemon:{path}",
    "containers-storage:{path}",
    "dir:{path}",
    "ostree:{path}",
    "sif:{path}",
    "tarball:{path}",
    "docker:debian:12",
    "docker:{path}",
    "docker://oci:{path}",
    "{path}",
    "./image.tar",
    "file://{path}",
    "OCI:{path}",
    " oci:{path}",
    "sha256:" + "0" * 64,
)


@dataclass
class World:
    """A control plane, and a member of a team that is no operator."""

    plane: Plane
    member: Client
    registry: Registry
    closed: Registry
    engine: str = ""

    async def made(self) -> list[Any]:
        listed = await self.member.get("/v1/sandboxes")
        tasks = await self.member.get("/v1/tasks")
        return [*listed["items"], *tasks["items"]]


@pytest.fixture(scope="module")
def registries() -> Iterator[tuple[Registry, Registry]]:
    """One that the operator allows, and one that nobody does."""
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        image_registry.registry(Path(one)) as allowed,
        image_registry.registry(Path(other)) as closed,
    ):
        yield allowed, closed


@pytest.fixture(scope="module", params=["local", "docker"])
async def world(
    request: pytest.FixtureRequest, registries: tuple[Registry, Registry]
) -> AsyncIterator[World]:
    allowed, closed = registries
    place = f"127.0.0.1:{allowed.port}"
    egress = EgressConfig(registries=(place,), certificates=str(allowed.certificate))
    engine = ""
    if request.param == "docker":
        engine = request.getfixturevalue("engine_host")
        request.getfixturevalue("base_image")

    async def opened(root: Path) -> Provider:
        if not engine:
            return await LocalProvider.open(local_config(), egress=egress)
        config = Installation(engine, root).config(registries=(place,))
        return await DockerProvider.open(config, source)

    async with disposable(provider=opened) as plane:
        team = await plane.team("tenants")
        token = await team.post("/v1/tokens", {"name": "plain", "role": "member"})
        yield World(plane, plane.client(token["token"]), allowed, closed, engine)


async def test_no_form_that_reads_the_host_is_taken_from_a_member(
    world: World, tmp_path: Path
) -> None:
    victim, archive = tmp_path / "victim", tmp_path / "image.tar"
    victim.mkdir()
    image_registry.archive_that_writes_to(victim, archive)
    for form in FORMS:
        template = form.format(path=archive)
        for path, body in (
            ("/v1/sandboxes", {"template": template}),
            ("/v1/tasks", {"prompt": "x", "agent": "claude", "template": template}),
        ):
            answer = await world.member.post(path, body)
            assert answer.status == 400, (template, path, answer.body)
            assert re.search("on the server's host|nor the name of", answer.error["message"])
            assert str(DATA) not in str(answer.body)
    assert list(victim.iterdir()) == []
    assert await world.made() == []


async def test_nor_from_an_operator_who_makes_a_sandbox(world: World, tmp_path: Path) -> None:
    answer = await world.plane.admin.post("/v1/sandboxes", {"template": f"oci:{tmp_path}:latest"})
    assert answer.status == 400
    assert "paddock template add" in answer.error["remediation"]


async def test_a_build_of_e2b_begins_with_no_image_of_the_host(
    world: World, tmp_path: Path
) -> None:
    victim, archive = tmp_path / "victim", tmp_path / "image.tar"
    victim.mkdir()
    image_registry.archive_that_writes_to(victim, archive)
    key = {"x-api-key": world.member.token}
    begun = await world.member.post("/v3/templates", {"name": "mine"}, headers=key)
    path = f"/v2/templates/{begun['templateID']}/builds/{begun['buildID']}"
    for form in FORMS:
        body = {"fromImage": form.format(path=archive)}
        answer = await world.member.post(path, body, headers=key)
        assert answer.status == 400, (body, answer.body)
    assert list(victim.iterdir()) == []
    assert await world.made() == []


async def test_a_registry_of_the_host_is_an_operators_to_allow(world: World) -> None:
    answer = await world.member.post("/v1/sandboxes", {"template": world.closed.by_address})
    assert answer.status == 403, answer.body
    assert "registries" in answer.error["remediation"]
    assert world.closed.seen == []
    assert await world.made() == []
    made = await world.member.post("/v1/sandboxes", {"template": world.registry.by_address})
    assert made.status == 201, made.body
    await world.member.delete(f"/v1/sandboxes/{made['id']}?force=true")


@pytest.mark.parametrize("world", ["docker"], indirect=True)
async def test_an_image_that_only_the_engine_has_is_nothing_for_a_member(world: World) -> None:
    """Whether it was built there, pulled with a password, or is another team's snapshot."""
    async with Engine(EngineAddress.parse(world.engine)) as engine:
        found = await engine.get("images/json", "list them")
        of_base = next(each for each in found if "paddock/base:test-base" in each["RepoTags"])
        secret = f"127.0.0.1:{world.registry.port}/team/secret"
        await engine.post(f"images/{of_base['Id']}/tag", "name it", repo=secret, tag="1")
        world.registry.realm = "https://127.0.0.1:9/token"
        try:
            for template in (f"{secret}:1", "paddock/base:test-base", of_base["Id"]):
                answer = await world.member.post("/v1/sandboxes", {"template": template})
                assert answer.status in (400, 403, 404, 503), (template, answer.body)
        finally:
            world.registry.realm = ""
            await engine.delete(f"images/{secret}:1", "take the name away")
    assert await world.made() == []
