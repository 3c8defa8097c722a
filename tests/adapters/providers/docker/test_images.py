"""What sandboxes start from: templates by name, the engine's own images, snapshots and forks."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.providers.docker.images import TemplateImage
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.adapters.providers.docker.records import Defaults
from paddock.adapters.providers.docker.templates import image_source
from paddock.adapters.providers.local.templates import BuiltTemplate
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.docker.conftest import TINY, Installation

pytestmark = pytest.mark.timeout(120)


async def said(provider: DockerProvider, key: str, script: str, **spec: Any) -> str:
    seen = await provider.create(key, SandboxSpec(**spec))
    async with Guest(await provider.guest(seen.ref)) as guest:
        return (await guest.exec(["sh", "-c", script])).text.strip()


@pytest.mark.proves("P6")
async def test_a_template_is_imported_once_and_brings_its_defaults(
    installation: Installation, tiny_root: Path
) -> None:
    opened = 0

    async def source(template: str) -> TemplateImage:
        @asynccontextmanager
        async def files() -> AsyncIterator[Path]:
            nonlocal opened
            opened += 1
            yield tiny_root

        defaults = Defaults(template, {"FROM": "template", "BOTH": "template"}, "root", "/etc")
        return TemplateImage(defaults, installation.name[-20:], files)

    provider = await DockerProvider.open(installation.config(), source)
    try:
        spec: dict[str, Any] = {"template": "odd.name_x", "env": {"BOTH": "spec"}}
        await asyncio.gather(*(said(provider, f"k{n}", "true", **spec) for n in range(3)))
        assert opened == 1
        told = await said(provider, "k0", "echo $FROM $BOTH; id -un; pwd", **spec)
        assert told == "template spec\nroot\n/etc"
    finally:
        await provider.aclose()


@pytest.mark.proves("P6")
async def test_a_tar_file_is_imported_as_it_is(
    installation: Installation, tiny_root: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "root.tar"
    assert os.system(f"tar -C {tiny_root} -cf {archive} .") == 0

    async def source(template: str) -> TemplateImage:
        @asynccontextmanager
        async def files() -> AsyncIterator[Path]:
            yield archive

        return TemplateImage(Defaults(template), installation.name[-20:], files)

    provider = await DockerProvider.open(installation.config(), source)
    try:
        assert await said(provider, "tar", "id -un", template="tarred") == "user"
    finally:
        await provider.aclose()


@pytest.mark.proves("P11", "P6")
async def test_an_image_of_somebody_else_gets_the_user_it_lacks(
    installation: Installation, tiny_root: Path, tmp_path: Path
) -> None:
    root = tmp_path / "foreign"
    shutil.copytree(tiny_root, root, symlinks=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh")
    (root / "etc/group").unlink()
    shutil.rmtree(root / "home")
    tag = installation.name[-20:]

    async def source(template: str) -> TemplateImage:
        @asynccontextmanager
        async def files() -> AsyncIterator[Path]:
            yield root

        return TemplateImage(Defaults(template, {}, "root"), tag, files)

    provider = await DockerProvider.open(installation.config(), source)
    try:
        assert await said(provider, "ours", "id -u", template="foreign") == "0"
        script = "id -u; id -gn; cd; pwd; touch mine; wc -l < /etc/passwd"
        told = await said(provider, "theirs", script, template=f"docker:paddock/foreign:{tag}")
        assert told == "1000\nuser\n/home/user\n2"
    finally:
        await provider.aclose()


@pytest.mark.proves("P6")
async def test_templates_of_the_local_store_have_the_same_files(
    installation: Installation, tiny_root: Path, tmp_path: Path
) -> None:
    seed = tmp_path / "seed, with a comma"
    (seed / "upper" / "etc").mkdir(parents=True)
    (seed / "upper" / "etc" / "set-up").write_text("done\n")
    os.mknod(seed / "upper" / "etc" / "hidden", 0o600 | 0o020000, 0)  # what overlayfs removed
    root = tmp_path / "lower"
    shutil.copytree(tiny_root, root, symlinks=True)
    (root / "etc" / "hidden").write_text("from below\n")
    recipes = {
        "prepared": Template("prepared", TemplateSource(SourceKind.DEBIAN, "x"), ("true",)),
        "engines": Template("engines", TemplateSource(SourceKind.IMAGE, "docker:paddock/x:y")),
    }

    async def build(template: Template) -> BuiltTemplate:
        return BuiltTemplate(
            digest=installation.name[-20:],
            lower=root,
            seed=seed,
            env=(("FROM", "build"),),
            user="",
            workdir="",
            root="",
            origin="",
            created_at=time.time(),
        )

    source = image_source(recipes.__getitem__, build)
    assert (await source("engines")).reference == "paddock/x:y"
    provider = await DockerProvider.open(installation.config(), source)
    try:
        script = "cat /etc/set-up; test -e /etc/hidden || echo gone; echo $FROM"
        assert await said(provider, "k", script, template="prepared") == "done\ngone\nbuild"
    finally:
        await provider.aclose()


async def test_a_key_of_a_snapshot_belongs_to_one_sandbox(installation: Installation) -> None:
    async with installation.opened() as provider:
        one = await provider.create("one", SandboxSpec(template=TINY))
        two = await provider.create("two", SandboxSpec(template=TINY))
        taken = await provider.snapshot(one.ref, "mine")
        with pytest.raises(Conflict, match="belongs to a snapshot"):
            await provider.snapshot(two.ref, "mine")
        assert taken.size_bytes is not None
        assert taken.size_bytes < 10 << 20, "only what was changed is counted"


async def test_the_image_under_a_fork_goes_with_the_last_that_stands_on_it(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        one = await provider.create("one", SandboxSpec(template=TINY))
        two = await provider.fork(one.ref, "two", SandboxSpec())
        three = await provider.fork(two.ref, "three", SandboxSpec())
        assert len((await installation.left())["images"]) == 2
        await provider.destroy(two.ref)
        await provider.destroy(one.ref)
        assert (await provider.observe(three.ref)).state == "running"
        await provider.destroy(three.ref)
        assert "images" not in await installation.left()


async def test_the_image_of_a_deleted_snapshot_goes_with_the_last_that_stands_on_it(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        one = await provider.create("one", SandboxSpec(template=TINY))
        taken = await provider.snapshot(one.ref, "taken")
        two = await provider.create("two", SandboxSpec(snapshot=taken.ref))
        await provider.delete_snapshot(taken.ref)
        assert [snapshot async for snapshot in provider.snapshots()] == []
        assert len((await installation.left())["images"]) == 1
        with pytest.raises(NotFound):
            await provider.create("three", SandboxSpec(snapshot=taken.ref))
        await provider.destroy(two.ref)
        assert "images" not in await installation.left()


async def test_a_running_sandbox_is_not_shown_as_paused_while_it_is_copied(
    installation: Installation,
) -> None:
    async with installation.opened() as provider:
        seen = await provider.create("one", SandboxSpec(template=TINY))
        async with Guest(await provider.guest(seen.ref)) as guest:
            fill = ["dd", "if=/dev/zero", "of=/home/user/big", "bs=1M", "count=200"]
            await guest.exec(fill, timeout=60)
        copying = asyncio.create_task(provider.snapshot(seen.ref, "big"))
        states = set()
        while not copying.done():
            states.add((await provider.observe(seen.ref)).state)
            await asyncio.sleep(0.005)
        await copying
        assert states == {"running"}
