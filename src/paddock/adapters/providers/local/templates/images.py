"""Container images: fetched by skopeo, unpacked by umoci, or taken from the local Docker engine."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import aiohttp
import msgspec

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.registry_access import RegistryAccess
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.templates.defaults import Defaults
from paddock.adapters.providers.local.templates.image_tools import (
    SCRATCH,
    SOURCE,
    Bounds,
    ImageTools,
)
from paddock.adapters.providers.local.templates.programs import ProgramFailed, need, run
from paddock.domain.errors import (
    Broken,
    InvalidRequest,
    NotFound,
    PaddockError,
    QuotaExceeded,
    TooLarge,
    Unavailable,
)
from paddock.domain.image_reference import ARCHIVES, ENGINE, LAYOUT, RegistryImage

_SOCKET = "/var/run/docker.sock"
_OFFLINE = (
    *("no such host", "connection refused", "connection reset", "timeout", "unreachable"),
    *("dial tcp", "tls:", "bad gateway"),
)
_ABSENT = ("manifest unknown", "not found", "no such file", "no descriptor", "requested access")
_UNJAILED = ("bwrap:", "mount_setattr", "move_mount", "user namespace", "setns:")
_FULL = ("no space left", "disk quota exceeded")

_Progress = Callable[[str, float | None], None]


class _Config(msgspec.Struct, rename="pascal"):
    env: list[str] | None = None
    user: str = ""
    working_dir: str = ""


class _Image(msgspec.Struct):
    config: _Config = msgspec.field(default_factory=_Config)


class _EngineImage(msgspec.Struct):
    id: str = msgspec.field(name="Id")


@dataclass(frozen=True, slots=True)
class Images:
    """Container images. Programs in a jail fetch, read and unpack them."""

    tools: ImageTools = field(default_factory=ImageTools)

    @classmethod
    def of(cls, config: LocalConfig, egress: EgressConfig) -> Self:
        return cls(ImageTools(RegistryAccess.of(egress), Bounds(config.image_mib)))

    def within(self, most_mib: int | None) -> "Images":
        """The same, for images of at most this size."""
        bounds = self.tools.bounds
        if most_mib is None or most_mib >= bounds.size_mib:
            return self
        return Images(replace(self.tools, bounds=replace(bounds, size_mib=most_mib)))

    async def identify(self, reference: str) -> str:
        """The manifest's digest; of an archive that of its bytes, of the engine's image its id."""
        if _is_engines(reference):
            async with _engine() as engine:
                return await _inspect_engine(engine, reference.removeprefix(ENGINE))
        if reference.startswith(ARCHIVES):
            return await asyncio.to_thread(_identify_archive, reference)
        need("skopeo", "bwrap")
        place = await asyncio.to_thread(_placed, reference)
        with _explained(reference):
            manifest = await self.tools.skopeo(
                *("inspect", "--raw", "--no-creds", place.address),
                source=place.source,
                image=place.image,
            )
        return hashlib.sha256(manifest).hexdigest()

    async def unpack(self, reference: str, root: Path, progress: _Progress) -> Defaults:
        """The image's files at `root`; its parent is used for scratch, which is removed again."""
        need("skopeo", "umoci", "bwrap")
        scratch = root.parent / "image"
        scratch.mkdir(mode=0o700)
        progress(f"fetching {reference}", 0.0)
        if _is_engines(reference):
            await _save_from_engine(reference.removeprefix(ENGINE), scratch / "saved.tar")
            place = _Place(f"docker-archive:{SCRATCH}/saved.tar")
        else:
            place = await asyncio.to_thread(_placed, reference)
        layout = f"oci:{SCRATCH}/layout:image"
        with _explained(reference):
            await self._copy(place, layout, scratch)
            config = await self.tools.skopeo("inspect", "--config", layout, scratch=scratch)
            progress("unpacking the image", 0.6)
            image = ("--image", layout.removeprefix("oci:"))
            await self.tools.umoci("unpack", *image, f"{SCRATCH}/bundle", scratch=scratch)
        await asyncio.to_thread(_take_root, scratch, root)
        await run(["rm", "-rf", "--", str(scratch)])
        return _defaults(msgspec.json.decode(config, type=_Image).config)

    async def save(self, reference: str, archive: Path) -> None:
        """The image as an archive that an engine loads."""
        need("skopeo", "bwrap")
        place = await asyncio.to_thread(_placed, reference)
        target = f"docker-archive:{SCRATCH}/{archive.name}"
        with _explained(reference):
            await self._copy(place, target, archive.parent)

    async def _copy(self, place: "_Place", target: str, scratch: Path) -> None:
        # Temporary files are as large as the image, and remain if skopeo is killed.
        await self.tools.skopeo(
            *("--tmpdir", SCRATCH, "copy", "--quiet", "--src-no-creds", place.address, target),
            scratch=scratch,
            source=place.source,
            image=place.image,
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a program in a jail finds an image."""

    address: str
    source: Path | None = None
    image: RegistryImage | None = None


def _placed(reference: str) -> _Place:
    """Locate an image. A reference without a transport names an image in a registry."""
    if not reference.startswith((LAYOUT, *ARCHIVES)):
        image = RegistryImage.parse(reference)
        return _Place(f"docker://{image}", image=image)
    path, tag = _split(reference)
    if not path.exists():
        raise NotFound(f"the image {reference} cannot be found: there is no file {path}")
    transport = reference.partition(":")[0]
    return _Place(f"{transport}:{SOURCE}{tag and ':'}{tag}", source=path)


def _take_root(scratch: Path, root: Path) -> None:
    """Move the unpacked files to `root` without following links, which are untrusted."""
    bundle = os.open(scratch / "bundle", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not stat.S_ISDIR(os.lstat("rootfs", dir_fd=bundle).st_mode):
            raise Broken("the unpacked image is not a directory")
        os.rename("rootfs", root, src_dir_fd=bundle)
    finally:
        os.close(bundle)


def _defaults(config: _Config) -> Defaults:
    pairs = [item.partition("=") for item in config.env or []]
    return Defaults(
        env=tuple((name, value) for name, _, value in pairs),
        user=config.user,
        workdir=config.working_dir,
    )


def _is_engines(reference: str) -> bool:
    return reference.startswith(ENGINE) and not reference.startswith("docker://")


def _split(reference: str) -> tuple[Path, str]:
    """The path of a layout or an archive, and the tag inside if one is named."""
    transport, _, rest = reference.partition(":")
    path, _, tag = rest.partition(":")
    if not path.startswith("/"):
        raise InvalidRequest(
            f"the image {reference!r} does not name an absolute path",
            remediation=f"write {transport}:/path/to/it",
        )
    return Path(path), tag


def _identify_archive(reference: str) -> str:
    path, tag = _split(reference)
    if not path.is_file():
        raise NotFound(f"the image {reference} cannot be found: there is no file {path}")
    with explained(path), path.open("rb") as file:
        return f"{tag} {hashlib.file_digest(file, 'sha256').hexdigest()}"


@contextmanager
def _explained(reference: str) -> Iterator[None]:
    try:
        yield
    except ProgramFailed as failure:
        raise _explain(reference, failure) from failure


def _explain(reference: str, failure: ProgramFailed) -> PaddockError:
    if line := failure.mentions(*_FULL):
        return QuotaExceeded(
            f"there is no room for the image {reference}: {line}",
            remediation="delete sandboxes, snapshots or templates that are no longer needed",
        )
    if failure.mentions("file too large"):
        return TooLarge(
            f"the image {reference} contains a file that is larger than the limit for images",
            remediation="use a smaller image, or raise the setting local.image_mib",
        )
    if line := failure.mentions(*_UNJAILED):
        return Unavailable(
            f"this host cannot run the image tools in a jail: {line}",
            remediation="allow user namespaces (sysctl user.max_user_namespaces), and keep "
            "local.data_dir on btrfs, ext4 or xfs with Linux 5.15 or newer",
        )
    if line := failure.mentions(*_ABSENT):
        return NotFound(
            f"the image {reference} cannot be found: {line}",
            remediation="check its name and tag; if it is private, an operator can add a template",
        )
    if line := failure.mentions(*_OFFLINE):
        return Unavailable(
            f"the image {reference} cannot be fetched: {line}",
            remediation="check this host's network and proxy settings, then try again",
        )
    return Broken(
        f"the image {reference} cannot be used",
        remediation=f"its last lines:\n    {failure.last_lines()}",
    )


def _engine() -> aiohttp.ClientSession:
    address = os.environ.get("DOCKER_HOST", f"unix://{_SOCKET}")
    if not address.startswith("unix://"):
        raise InvalidRequest(
            f"images are taken from a Docker engine on this host only, not from {address}",
            remediation="unset DOCKER_HOST, or name the image in a registry",
        )
    connector = aiohttp.UnixConnector(address.removeprefix("unix://"))
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300)
    return aiohttp.ClientSession(connector=connector, base_url="http://docker", timeout=timeout)


async def _inspect_engine(engine: aiohttp.ClientSession, name: str) -> str:
    try:
        async with engine.get(f"/images/{name}/json") as answer:
            body = await answer.read()
            if answer.status == 404:
                raise NotFound(
                    f"the Docker engine has no image {name!r}",
                    remediation=f"docker pull {name}, or docker build -t {name} .",
                )
            answer.raise_for_status()
            return msgspec.json.decode(body, type=_EngineImage).id
    except (aiohttp.ClientError, msgspec.MsgspecError) as error:
        raise _engine_fault(error) from error


async def _save_from_engine(name: str, target: Path) -> None:
    async with _engine() as engine:
        await _inspect_engine(engine, name)
        try:
            async with engine.get(f"/images/{name}/get") as answer:
                answer.raise_for_status()
                with target.open("wb") as file:
                    async for chunk in answer.content.iter_chunked(1 << 20):
                        file.write(chunk)
        except aiohttp.ClientError as error:
            raise _engine_fault(error) from error


def _engine_fault(error: Exception) -> Unavailable:
    return Unavailable(
        f"the Docker engine did not answer: {error}",
        remediation="see that it runs: docker version",
    )
