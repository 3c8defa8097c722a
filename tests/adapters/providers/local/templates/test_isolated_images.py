"""Images of strangers: nothing in one, and no registry, reaches the host.

Issue: any member of any team gets root on the host.
"""

import asyncio
import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.host.jail import FIRST_ID, IDS
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.adapters.providers.local.templates.image_tools import Bounds
from paddock.adapters.providers.local.templates.images import Images
from paddock.domain.errors import Forbidden, PaddockError, TimedOut, TooLarge
from tests import image_registry
from tests.image_registry import NAME, Image, Registry, member

from .conftest import from_image, left_over, no_setup


@pytest.fixture(params=["copy"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with image_registry.registry(tmp_path) as made:
        yield made


def images_of(registry: Registry, *allowed: str) -> Images:
    egress = EgressConfig(
        hosts={NAME: "127.0.0.1"}, certificates=str(registry.certificate), registries=allowed
    )
    return Images.of(LocalConfig(), egress)


def allowing(registry: Registry) -> Images:
    return images_of(registry, f"127.0.0.1:{registry.port}")


def store_with(storage: Storage, images: Images) -> TemplateStore:
    return TemplateStore(storage, storage.pool.parent, images=images)


@pytest.mark.parametrize(
    ("driver", "way"), [("copy", "by_name"), ("btrfs-loop", "by_address")], indirect=["driver"]
)
async def test_an_image_of_an_allowed_registry_is_unpacked_with_its_owners(
    storage: Storage, registry: Registry, way: str
) -> None:
    store = store_with(storage, allowing(registry))
    build = await store.ensure(from_image(getattr(registry, way)), setup_runner=no_setup)
    assert (build.lower / "bin/su").stat().st_mode & 0o7777 == 0o4755
    assert (build.lower / "bin/su").stat().st_uid == 0
    found = (build.lower / "srv/file").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (33, 44, 0o640)
    assert not (build.lower / "dev/console").is_char_device()
    assert left_over(storage) == []


@pytest.mark.parametrize("host", ["by_name", "by_address", "localhost", "169.254.169.254"])
async def test_a_registry_at_an_address_that_is_not_public_is_refused(
    storage: Storage, registry: Registry, host: str
) -> None:
    reference = getattr(registry, host, f"{host}:{registry.port}/team/image:1")
    store = store_with(storage, images_of(registry))
    with pytest.raises(Forbidden, match=r"this host itself|metadata") as caught:
        await store.ensure(from_image(reference), setup_runner=no_setup)
    assert "egress.registries" in caught.value.remediation
    assert registry.seen == []
    assert left_over(storage) == []


@pytest.mark.parametrize("leads_by", ["realm", "blobs_at"])
@pytest.mark.parametrize("to", ["127.0.0.1", "trap.example"])
async def test_a_registry_leads_nobody_to_a_service_of_the_host(
    storage: Storage, registry: Registry, leads_by: str, to: str
) -> None:
    images = allowing(registry)
    hosts = {**images.tools.access.hosts, "trap.example": "127.0.0.1"}
    images = Images(replace(images.tools, access=replace(images.tools.access, hosts=hosts)))
    with image_registry.trap() as (port, asked):
        setattr(registry, leads_by, f"http://{to}:{port}/latest/meta-data")
        with pytest.raises(PaddockError) as caught:
            await store_with(storage, images).ensure(
                from_image(registry.by_name), setup_runner=no_setup
            )
        assert asked == []
    if to == "trap.example":
        assert isinstance(caught.value, Forbidden)
        assert f"{to}:{port}" in caught.value.message
    assert left_over(storage) == []


async def test_no_login_of_the_host_is_sent_to_a_registry(
    storage: Storage, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auths = {f"{NAME}:{registry.port}": {"auth": "cm9vdDpob3N0cw=="}}
    login = json.dumps({"auths": auths})
    for place in ("home/.docker/config.json", "run/containers/auth.json", "auth.json"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(login)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    registry.realm = f"https://{NAME}:{registry.port}/token"
    with pytest.raises(PaddockError):
        await allowing(registry).identify(registry.by_name)
    assert registry.seen
    assert not [fields for _, fields in registry.seen if "Authorization" in fields]


async def test_a_program_that_fetches_an_image_is_nobody_and_sees_nothing(
    storage: Storage, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_MASTER_KEY", "of the server")
    registry.hold.clear()
    store = store_with(storage, allowing(registry))
    fetching = asyncio.create_task(
        store.ensure(from_image(registry.by_name), setup_runner=no_setup)
    )
    assert await asyncio.to_thread(registry.asked.wait, 20)
    place = _process("skopeo", registry.by_name)
    try:
        status = (place / "status").read_text()
        for kind in ("Uid", "Gid"):
            ids = re.search(rf"^{kind}:(.*)$", status, re.M)
            assert ids and {int(each) for each in ids[1].split()} == {FIRST_ID}
        for sets in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            assert re.search(rf"^{sets}:\s0+$", status, re.M), status
        assert "NoNewPrivs:\t1" in status
        points = [line.split()[4] for line in (place / "mountinfo").read_text().splitlines()]
        real = {point for point in points if not point.startswith(("/dev/", "/etc/"))}
        assert real <= {"/", "/usr", "/proc", "/dev", "/scratch", "/bin", "/sbin", "/lib", "/lib64"}
        for name in ("user", "mnt", "net", "pid", "ipc", "uts"):
            assert (place / "ns" / name).readlink() != Path("/proc/self/ns", name).readlink()
        assert "of the server" not in (place / "environ").read_text()
    finally:
        registry.hold.set()
        await fetching


async def test_programs_end_with_who_waits_for_them(storage: Storage, registry: Registry) -> None:
    registry.hold.clear()
    images = allowing(registry)
    hasty = replace(images.tools, bounds=Bounds(seconds=2.0))
    with pytest.raises(TimedOut, match="not ready after 2 s"):
        await store_with(storage, Images(hasty)).ensure(
            from_image(registry.by_name), setup_runner=no_setup
        )
    assert _processes("skopeo", registry.by_name) == []
    assert left_over(storage) == []


def _process(*words: str) -> Path:
    (found,) = _processes(*words)
    return found


def _processes(program: str, word: str) -> list[Path]:
    """Those of a program in a jail, whose ids are the jail's."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            argv = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
            owner = place.stat().st_uid
        except OSError:
            continue
        named = any(word in each for each in argv)
        if argv[0] == program and named and FIRST_ID <= owner < FIRST_ID + IDS:
            found.append(place)
    return found


async def test_a_link_in_an_archive_writes_nothing_on_the_host(
    storage: Storage, store: TemplateStore, tmp_path: Path
) -> None:
    victim, archive = tmp_path / "victim", tmp_path / "image.tar"
    victim.mkdir(mode=0o777)
    victim.chmod(0o777)
    image_registry.archive_that_writes_to(victim, archive)
    with pytest.raises(PaddockError) as caught:
        await store.ensure(from_image(f"oci-archive:{archive}"), setup_runner=no_setup)
    assert list(victim.iterdir()) == []
    assert str(storage.pool) not in str(caught.value)
    assert left_over(storage) == []


async def test_a_link_in_a_layer_writes_nothing_on_the_host(
    storage: Storage, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o777)
    victim.chmod(0o777)
    image = Image.of(
        [
            member("out", type=tarfile.SYMTYPE, linkname=str(victim)),
            member("out/written", b"by a tenant"),
            member("up", type=tarfile.SYMTYPE, linkname="../../../../.."),
            member(f"up{victim}/climbed", b"by a tenant"),
        ]
    )
    with image_registry.registry(tmp_path, image) as registry:
        store = store_with(storage, allowing(registry))
        await store.ensure(from_image(registry.by_name), setup_runner=no_setup)
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize(
    ("bounds", "why"),
    [(Bounds(size_mib=8), "more than 8 MiB|larger than"), (Bounds(entries=200), "200 files")],
)
async def test_an_image_that_unpacks_to_too_much_is_refused(
    storage: Storage, tmp_path: Path, bounds: Bounds, why: str
) -> None:
    many = [member(f"d/{number}") for number in range(300)]
    image = Image.of([*many, *(member(f"f{number}", bytes(4 << 20)) for number in range(3))])
    with image_registry.registry(tmp_path, image) as registry:
        tools = replace(allowing(registry).tools, bounds=bounds)
        with pytest.raises(TooLarge, match=why):
            await store_with(storage, Images(tools)).ensure(
                from_image(registry.by_name), setup_runner=no_setup
            )
    assert left_over(storage) == []


async def test_one_file_that_is_too_large_is_not_even_written(
    storage: Storage, tmp_path: Path
) -> None:
    with image_registry.registry(tmp_path, Image.of([member("f", bytes(32 << 20))])) as registry:
        tools = replace(allowing(registry).tools, bounds=Bounds(size_mib=8))
        with pytest.raises(TooLarge):
            await store_with(storage, Images(tools)).ensure(
                from_image(registry.by_name), setup_runner=no_setup
            )
    assert left_over(storage) == []
