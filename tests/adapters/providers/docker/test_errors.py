"""What goes wrong is said in our own words, with the way out, and leaves nothing behind."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.adapters.providers.docker import checks, faults
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.images import TemplateImage
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.adapters.providers.docker.records import Defaults
from paddock.domain.errors import (
    Broken,
    Conflict,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from paddock.domain.sandbox import Resources
from paddock.ports.provider import Ref, SandboxSpec, Status
from tests.adapters.providers.docker.conftest import TINY, Installation


async def test_a_wrong_docker_host_says_what_to_do(short_directory: Path) -> None:
    nowhere = f"unix://{short_directory}/nobody.sock"
    with pytest.raises(Unavailable, match="no Docker engine answers") as caught:
        await DockerProvider.open(DockerConfig(host=nowhere, run_root=short_directory))
    assert nowhere in caught.value.message
    for way in ("systemctl start docker", "podman system service", "DOCKER_HOST"):
        assert way in caught.value.remediation


async def test_a_host_that_refuses_connections_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match="no Docker engine answers"):
            await DockerProvider.open(DockerConfig(host=host))


def test_a_socket_one_may_not_use_names_the_group() -> None:
    address = EngineAddress.parse("unix:///var/run/docker.sock")
    said = faults.unreachable(address, PermissionError(13, "Permission denied"))
    assert "usermod -aG docker" in said.remediation


async def test_what_is_no_engine_is_not_taken_for_one(short_directory: Path) -> None:
    async with _other_server() as host:
        with pytest.raises(Broken, match="not a Docker engine"):
            await DockerProvider.open(DockerConfig(host=host, run_root=short_directory))


@asynccontextmanager
async def _other_server() -> AsyncIterator[str]:
    from aiohttp import web

    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/_ping", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"tcp://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_check_raises_nothing_where_there_is_no_engine(short_directory: Path) -> None:
    health = await checks.check(DockerConfig(host=f"unix://{short_directory}/nobody.sock"))
    assert not health.usable
    (finding,) = health.findings
    assert (finding.name, finding.status) == ("engine", Status.MISSING)
    assert "DOCKER_HOST" in finding.fix


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (400, "bad parameter", Refused),
        (401, "who are you", Refused),
        (404, "No such container: x", NotFound),
        (409, "Conflict. The name is already in use by container", Conflict),
        (500, "that name is already in use by something", Conflict),
        (500, "something broke", Broken),
        (500, "write /x: no space left on device", QuotaExceeded),
        (403, "all predefined address pools have been fully subnetted", QuotaExceeded),
        (429, "too many requests", QuotaExceeded),
        (503, "later", Unavailable),
    ],
)
def test_every_refusal_becomes_an_error_of_ours_with_its_context(
    status: int, said: str, error: type[Exception]
) -> None:
    raised = faults.of_message(status, said, "do the thing")
    assert type(raised) is error
    assert raised.message.startswith("the engine could not do the thing: ")


def test_an_answer_that_is_no_json_is_shortened() -> None:
    raised = faults.of_answer(500, b"<html>" + b"x" * 10_000, "do the thing")
    assert len(raised.message) < 1000


@pytest.mark.proves("P11")
@pytest.mark.parametrize(
    ("python", "said"),
    [("", "has no python3"), ("#!/bin/sh\nexit 93\n", "older than 3.9")],
)
async def test_a_packed_guest_needs_python_and_says_so(
    installation: Installation, tmp_path: Path, tiny_root: Path, python: str, said: str
) -> None:
    """An image with an old Python is stood in for by a program that ends as it would."""
    root = tmp_path / "root"
    os.system(f"cp -a {tiny_root} {root}")
    if python:
        (root / "bin/python3").write_text(python)
        (root / "bin/python3").chmod(0o755)

    async def source(template: str) -> TemplateImage:
        @asynccontextmanager
        async def files() -> AsyncIterator[Path]:
            yield root

        return TemplateImage(Defaults(template), f"test-{tmp_path.name.replace('_', '-')}", files)

    provider = await DockerProvider.open(installation.config(guest="packed"), source)
    try:
        with pytest.raises(InvalidRequest, match=said) as caught:
            await provider.create("without", SandboxSpec(template="bare"))
        assert "Python 3.9" in caught.value.remediation
        assert [seen async for seen in provider.find({})] == []
    finally:
        await provider.aclose()
    assert await installation.left() == {}


async def test_bad_requests_are_refused_before_anything_is_made(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        for spec, error in (
            (SandboxSpec(), InvalidRequest),
            (SandboxSpec(template=TINY, runtime="nosuch"), InvalidRequest),
            (SandboxSpec(template=TINY, resources=Resources(cpus=4096)), InvalidRequest),
            (SandboxSpec(template="docker:localhost/no/such:image"), (NotFound, Unavailable)),
        ):
            with pytest.raises(error) as caught:
                await provider.create("bad", spec)
            assert caught.value.remediation
        for ref in (Ref("docker", "../../info"), Ref("local", "a" * 64), Ref("docker", "f" * 64)):
            with pytest.raises(NotFound):
                await provider.observe(ref)
            await provider.destroy(ref)
    assert await installation.left() == {}


async def test_a_container_whose_label_was_damaged_does_not_hide_the_others(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("whole", SandboxSpec(template=TINY))
        marks = {"paddock.installation": installation.name, "paddock.kind": "sandbox"}
        order = {"Image": "paddock/tiny:test-tiny", "Cmd": ["true"], "Labels": marks}
        async with Engine(EngineAddress.parse(installation.host)) as engine:
            made = await engine.post("containers/create", "make", order)
            try:
                assert [one.ref async for one in provider.find({})] == [seen.ref]
                with pytest.raises(Broken, match="cannot be read"):
                    await provider.observe(Ref("docker", made["Id"]))
            finally:
                await engine.delete(f"containers/{made['Id']}", "remove")


def test_an_unusable_name_of_an_installation_is_refused() -> None:
    from paddock.adapters.providers.docker.opening import _names

    with pytest.raises(InvalidRequest, match="installation"):
        _names(DockerConfig(installation="a b"))
