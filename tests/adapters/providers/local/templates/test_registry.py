"""Templates from image references, fetched from a real OCI registry on loopback."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.adapters.providers.local.templates.images import Images
from paddock.domain.errors import NotFound
from tests.conftest import Need
from tests.image_registry import Image, digest, member, small
from tests.oci_registry import VERSION, OciRegistry, oci_registry, program

from .conftest import from_image, left_over, no_setup

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NAME = "team/image"


@pytest.fixture(scope="module", params=[f"distribution-{VERSION}"])
def registry(need: Need) -> Iterator[OciRegistry]:
    with oci_registry(program(need)) as made:
        yield made


@pytest.fixture(params=["copy"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(storage: Storage, registry: OciRegistry) -> TemplateStore:
    egress = EgressConfig(certificates=str(registry.authority), registries=(registry.host,))
    images = Images.of(LocalConfig(), egress)
    return TemplateStore(storage, storage.pool.parent, images=images)


async def test_an_image_is_unpacked_by_its_tag_and_by_its_digest(
    store: TemplateStore, storage: Storage, registry: OciRegistry
) -> None:
    pushed = registry.push(small(), NAME, "1")
    references = f"{registry.host}/{NAME}:1", f"{registry.host}/{NAME}@{pushed}"
    builds = [await store.ensure(from_image(each), setup_runner=no_setup) for each in references]
    assert (builds[0].lower / "srv/file").read_text() == "of somebody\n"
    found = (builds[0].lower / "srv/file").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (33, 44, 0o640)
    assert builds[1].digest == builds[0].digest
    assert left_over(storage) == []


async def test_of_an_index_this_machines_architecture_is_taken(
    store: TemplateStore, registry: OciRegistry
) -> None:
    own = small()
    config = json.loads(own.blobs[json.loads(own.manifest)["config"]["digest"]])
    other = "arm64" if config["architecture"] == "amd64" else "amd64"
    foreign = _with_architecture(Image.of([member("srv/file", b"foreign\n")]), other)
    for image, tag in ((own, "own"), (foreign, "foreign")):
        registry.push(image, NAME, tag)
    entries = {other: foreign.manifest, config["architecture"]: own.manifest}
    registry.push_index(NAME, "both", entries)
    reference = f"{registry.host}/{NAME}:both"
    build = await store.ensure(from_image(reference), setup_runner=no_setup)
    assert (build.lower / "srv/file").read_text() == "of somebody\n"


@pytest.mark.parametrize("reference", [f"{NAME}:none", "nobody/nothing:1"])
async def test_an_image_that_the_registry_does_not_have_is_not_found(
    store: TemplateStore, storage: Storage, registry: OciRegistry, reference: str
) -> None:
    with pytest.raises(NotFound, match="cannot be found"):
        await store.ensure(from_image(f"{registry.host}/{reference}"), setup_runner=no_setup)
    assert left_over(storage) == []


def _with_architecture(image: Image, architecture: str) -> Image:
    manifest = json.loads(image.manifest)
    before = manifest["config"]["digest"]
    config = {**json.loads(image.blobs[before]), "architecture": architecture}
    about = json.dumps(config).encode()
    blobs = {name: blob for name, blob in image.blobs.items() if name != before}
    manifest["config"] = {**manifest["config"], "digest": digest(about), "size": len(about)}
    return replace(
        image, manifest=json.dumps(manifest).encode(), blobs={**blobs, digest(about): about}
    )
