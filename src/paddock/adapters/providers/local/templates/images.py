"""Container images: fetched by skopeo, unpacked by umoci, or taken from the local Docker engine."""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec

from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.templates.defaults import Defaults
from paddock.adapters.providers.local.templates.programs import ProgramFailed, need, run
from paddock.domain.errors import (
    Broken,
    InvalidRequest,
    NotFound,
    PaddockError,
    QuotaExceeded,
    Unavailable,
)

_LAYOUT = "oci:"
_ARCHIVES = ("oci-archive:", "docker-archive:")
_ENGINE = "docker:"
_SOCKET = "/var/run/docker.sock"
_OFFLINE = ("no such host", "connection refused", "timeout", "unreachable", "dial tcp", "tls:")
_ABSENT = ("manifest unknown", "not found", "no such file", "no descriptor", "requested access")
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


async def identify(reference: str) -> str:
    """The manifest's digest; of an archive that of its bytes, of the engine's image its id."""
    if _is_engines(reference):
        async with _engine() as engine:
            return await _inspect_engine(engine, reference.removeprefix(_ENGINE))
    if reference.startswith(_ARCHIVES):
        return await asyncio.to_thread(_identify_archive, reference)
    need("skopeo")
    manifest = await _skopeo(reference, "inspect", "--raw", _address(reference))
    return hashlib.sha256(manifest).hexdigest()


async def unpack(reference: str, root: Path, progress: _Progress) -> Defaults:
    """The image's files at `root`; its parent is used for scratch, which is removed again."""
    need("skopeo", "umoci")
    scratch = root.parent / "image"
    scratch.mkdir()
    progress(f"fetching {reference}", 0.0)
    address = _address(reference)
    if _is_engines(reference):
        saved = scratch / "saved.tar"
        await _save_from_engine(reference.removeprefix(_ENGINE), saved)
        address = f"docker-archive:{saved}"
    layout = f"oci:{scratch}/layout:image"
    # Its scratch is as large as the image, and stays behind when it is killed.
    await _skopeo(reference, "--tmpdir", str(scratch), "copy", "--quiet", address, layout)
    config = await _skopeo(reference, "inspect", "--config", layout)
    progress("unpacking the image", 0.6)
    await _umoci(reference, scratch)
    (scratch / "bundle" / "rootfs").rename(root)
    await run(["rm", "-rf", "--", str(scratch)])
    return _defaults(msgspec.json.decode(config, type=_Image).config)


async def save(reference: str, archive: Path) -> None:
    """The image as an archive that an engine loads."""
    need("skopeo")
    target = f"docker-archive:{archive}"
    scratch = str(archive.parent)
    await _skopeo(reference, "--tmpdir", scratch, "copy", "--quiet", _address(reference), target)


def _defaults(config: _Config) -> Defaults:
    pairs = [item.partition("=") for item in config.env or []]
    return Defaults(
        env=tuple((name, value) for name, _, value in pairs),
        user=config.user,
        workdir=config.working_dir,
    )


def _is_engines(reference: str) -> bool:
    return reference.startswith(_ENGINE) and not reference.startswith("docker://")


_IN_A_REGISTRY = re.compile(
    r"[a-zA-Z0-9][\w.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


def _address(reference: str) -> str:
    """As skopeo names it. A reference without a transport is a registry's."""
    if reference.startswith(("docker://", _ENGINE)):
        return reference
    if reference.startswith((_LAYOUT, *_ARCHIVES)):
        _split(reference)
        return reference
    if not _IN_A_REGISTRY.fullmatch(reference):
        raise InvalidRequest(
            f"{reference[:80]!r} is neither a template nor the name of an image",
            remediation="`paddock template ls` shows the templates; an image is named like "
            "debian:12 or registry.example/team/image@sha256:…",
        )
    return f"docker://{reference}"


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


async def _skopeo(reference: str, *arguments: str) -> bytes:
    # Without the file it refuses everything; a host that has one keeps its say.
    lax = [] if Path("/etc/containers/policy.json").exists() else ["--insecure-policy"]
    try:
        return await run(["skopeo", *lax, *arguments])
    except ProgramFailed as failure:
        raise _explain(reference, failure) from failure


async def _umoci(reference: str, scratch: Path) -> None:
    image, bundle = f"{scratch}/layout:image", str(scratch / "bundle")
    try:
        await run(["umoci", "unpack", "--image", image, bundle])
    except ProgramFailed as failure:
        raise _explain(reference, failure) from failure


def _explain(reference: str, failure: ProgramFailed) -> PaddockError:
    if line := failure.mentions(*_FULL):
        return QuotaExceeded(
            f"there is no room for the image {reference}: {line}",
            remediation="delete sandboxes, snapshots or templates that are no longer needed",
        )
    if line := failure.mentions(*_ABSENT):
        return NotFound(
            f"the image {reference} cannot be found: {line}",
            remediation="check its name and tag, and `skopeo login` where it is private",
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
