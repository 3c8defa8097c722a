"""Images from layouts, archives, the Docker engine and registries."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.adapters.providers.local.templates.images import Images
from paddock.domain.errors import Broken, InvalidRequest, NotFound, Unavailable

from ..storage.disks import run
from .conftest import from_image, left_over, make_tree, no_setup


@pytest.fixture(params=["copy"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """An OCI layout with one image, `image:v1`, of two layers."""
    layout, scratch = tmp_path / "layout", tmp_path / "scratch"
    run("umoci", "init", "--layout", str(layout))
    image = f"{layout}:v1"
    run("umoci", "new", "--image", image)
    run("umoci", "unpack", "--image", image, str(scratch))
    shutil.rmtree(scratch / "rootfs")
    make_tree(scratch / "rootfs")
    (scratch / "rootfs/etc/removed").write_text("")
    run("umoci", "repack", "--image", image, str(scratch))
    run("rm", "-rf", str(scratch))
    run("umoci", "unpack", "--image", image, str(scratch))
    (scratch / "rootfs/etc/removed").unlink()
    (scratch / "rootfs/etc/added").write_text("in the second layer")
    run("umoci", "repack", "--image", image, str(scratch))
    run("rm", "-rf", str(scratch))
    settings = ["--config.env", "GREETING=hello=you", "--config.workingdir", "/srv"]
    run("umoci", "config", "--image", image, *settings, "--config.user", "33:44")
    return layout


async def test_an_image_of_a_layout_is_unpacked_with_its_defaults(
    store: TemplateStore, storage: Storage, layout: Path
) -> None:
    build = await store.ensure(from_image(f"oci:{layout}:v1"), setup_runner=no_setup)
    assert (build.lower / "etc/added").read_text() == "in the second layer"
    assert not (build.lower / "etc/removed").exists()
    assert (build.lower / "usr/bin/tool").stat().st_mode & 0o7777 == 0o4755
    assert (build.lower / "usr/lib").stat().st_uid == 33
    assert ("GREETING", "hello=you") in build.env
    assert (build.user, build.workdir) == ("33:44", "/srv")
    assert sorted(path.name for path in build.lower.parent.iterdir()) == ["rootfs", "template.json"]
    assert left_over(storage) == []


@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
async def test_archives_of_images_are_unpacked(
    store: TemplateStore, layout: Path, tmp_path: Path, transport: str
) -> None:
    reference = f"{transport}:{tmp_path}/image.tar"
    run("skopeo", "copy", "--quiet", f"oci:{layout}:v1", reference)
    build = await store.ensure(from_image(reference), setup_runner=no_setup)
    assert (build.lower / "etc/added").exists()
    assert ("GREETING", "hello=you") in build.env


async def test_the_same_image_under_another_tag_is_not_built_again(
    store: TemplateStore, layout: Path
) -> None:
    first = await store.ensure(from_image(f"oci:{layout}:v1"), setup_runner=no_setup)
    run("umoci", "tag", "--image", f"{layout}:v1", "v2")
    second = await store.ensure(from_image(f"oci:{layout}:v2"), setup_runner=no_setup)
    assert second.digest == first.digest


async def test_an_image_that_is_not_there_is_not_found(
    store: TemplateStore, storage: Storage, layout: Path, tmp_path: Path
) -> None:
    for reference in (
        f"oci:{layout}:v7",
        f"oci:{tmp_path}/none:v1",
        f"oci-archive:{tmp_path}/x.tar",
    ):
        with pytest.raises(NotFound, match="cannot be found"):
            await store.ensure(from_image(reference), setup_runner=no_setup)
    with pytest.raises(InvalidRequest, match="absolute path"):
        await store.ensure(from_image("oci:layout:v1"), setup_runner=no_setup)
    assert left_over(storage) == []


async def test_a_damaged_image_is_refused(
    store: TemplateStore, storage: Storage, layout: Path
) -> None:
    blobs = sorted((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(blobs[-1].read_bytes())
    content[len(content) // 2] ^= 0xFF
    blobs[-1].write_bytes(content)
    with pytest.raises(Broken, match="cannot be used"):
        await store.ensure(from_image(f"oci:{layout}:v1"), setup_runner=no_setup)
    assert left_over(storage) == []
    assert store.builds() == []


async def test_a_registry_that_cannot_be_reached_is_unavailable(
    storage: Storage,
) -> None:
    images = Images.of(LocalConfig(), EgressConfig(registries=("127.0.0.1:9",)))
    store = TemplateStore(storage, storage.pool.parent, images=images)
    with pytest.raises(Unavailable, match="cannot be fetched"):
        await store.ensure(from_image("127.0.0.1:9/library/image:1"), setup_runner=no_setup)
    assert left_over(storage) == []


@pytest.fixture(scope="module")
def engine(
    need: Callable[[str, str], NoReturn], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A Docker engine of our own, without a network."""
    if not shutil.which("dockerd"):
        need("dockerd", "not installed")
    home = tmp_path_factory.mktemp("engine")
    socket = f"unix://{home}/docker.sock"
    command = ["dockerd", "--data-root", f"{home}/data", "--exec-root", f"{home}/exec"]
    command += ["-H", socket, "--pidfile", f"{home}/pid", "--bridge=none", "--iptables=false"]
    command += ["--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await_engine(socket, home / "log")
        yield socket
    finally:
        process.terminate()
        process.wait(30)
        subprocess.run(["umount", "--recursive", f"{home}/data"], capture_output=True, check=False)


def await_engine(socket: str, log: Path) -> None:
    deadline = time.monotonic() + 30
    while subprocess.run(
        ["docker", "-H", socket, "version"], capture_output=True, check=False
    ).returncode:
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.2)


async def test_an_image_of_the_docker_engine_is_unpacked(
    store: TemplateStore,
    storage: Storage,
    engine: str,
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = tmp_path / "root.tar"
    run("tar", "-cf", str(archive), "-C", str(tree), ".")
    changes = ["-c", "ENV GREETING=hello", "-c", "WORKDIR /srv", "-c", "USER 33"]
    run("docker", "-H", engine, "import", *changes, str(archive), "local/small:v1")
    monkeypatch.setenv("DOCKER_HOST", engine)
    build = await store.ensure(from_image("docker:local/small:v1"), setup_runner=no_setup)
    assert (build.lower / "usr/bin/tool").stat().st_mode & 0o7777 == 0o4755
    assert ("GREETING", "hello") in build.env
    assert (build.user, build.workdir) == ("33", "/srv")
    with pytest.raises(NotFound, match="docker pull local/none"):
        await store.ensure(from_image("docker:local/none"), setup_runner=no_setup)
    assert left_over(storage) == []


async def test_an_engine_that_is_not_there_is_unavailable(
    store: TemplateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(Unavailable, match="Docker engine"):
        await store.ensure(from_image("docker:local/small"), setup_runner=no_setup)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    with pytest.raises(InvalidRequest, match="on this host only"):
        await store.ensure(from_image("docker:local/small"), setup_runner=no_setup)


async def test_without_skopeo_the_way_to_install_it_is_told(
    store: TemplateStore, layout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable) as caught:
        await store.ensure(from_image(f"oci:{layout}:v1"), setup_runner=no_setup)
    assert caught.value.remediation == "apt install skopeo bubblewrap"
    assert json.dumps(caught.value.as_dict())
    assert os.environ["PATH"] == "/nowhere"


@pytest.mark.parametrize("name", ["../../etc", "a b", "-x", "a/../b", "a//b", "x@sha256:1"])
async def test_what_cannot_be_an_image_is_refused_before_anybody_is_asked(
    store: TemplateStore, storage: Storage, name: str
) -> None:
    with pytest.raises(InvalidRequest, match="neither a template nor the name of an image"):
        await store.ensure(from_image(name), setup_runner=no_setup)
    assert left_over(storage) == []
