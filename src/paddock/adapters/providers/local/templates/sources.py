"""Where root file systems come from: which content a source means now, and how it is fetched."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.trees import copy_tree
from paddock.adapters.providers.local.templates import archives, debian
from paddock.adapters.providers.local.templates.defaults import Defaults
from paddock.adapters.providers.local.templates.images import Images
from paddock.domain.errors import InvalidRequest, NotFound
from paddock.domain.template import SourceKind, TemplateSource

REVISION = 1
"""Of the builders: raise it when they make something else out of the same source."""

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class SnapshotParts:
    """What a snapshot consists of: a build's root file system, and a volume over it."""

    lower: Path
    volume: Path
    defaults: Defaults = field(default_factory=Defaults)


async def identify(source: TemplateSource, images: Images) -> str:
    """The digest of what the source holds now. Equal content need not be built twice.

    A Debian is its suite and packages, an image its manifest, a tar the bytes of the file, a
    directory the names, modes, owners, sizes and times of everything in it (not the contents), a
    snapshot, which never changes, its reference.
    """
    match source.kind:
        case SourceKind.DEBIAN:
            identity = json.dumps([source.reference, sorted(source.packages)])
        case SourceKind.IMAGE:
            identity = await images.identify(source.reference)
        case SourceKind.TAR:
            identity = await asyncio.to_thread(_hash_file, _existing_file(source.reference))
        case SourceKind.DIRECTORY:
            identity = await asyncio.to_thread(
                _hash_directory, _existing_directory(source.reference)
            )
        case SourceKind.SNAPSHOT:
            identity = source.reference
    return digest_of(REVISION, source.kind, identity)


def check_there(source: TemplateSource) -> None:
    """InvalidRequest if a path that a recipe names is not on this machine."""
    if source.kind is SourceKind.TAR:
        _existing_file(source.reference)
    elif source.kind is SourceKind.DIRECTORY:
        _existing_directory(source.reference)


async def fetch(source: TemplateSource, root: Path, progress: Progress, images: Images) -> Defaults:
    """Fill `root`, which does not exist yet; scratch may lie beside it until this returns."""
    match source.kind:
        case SourceKind.DEBIAN:
            return await debian.build(source.reference, source.packages, root, progress)
        case SourceKind.IMAGE:
            return await images.unpack(source.reference, root, progress)
        case SourceKind.TAR:
            progress("unpacking the archive", None)
            await archives.unpack(Path(source.reference), root)
        case SourceKind.DIRECTORY:
            progress("copying the directory", None)
            await asyncio.to_thread(_copy_directory, Path(source.reference), root)
        case SourceKind.SNAPSHOT:
            raise AssertionError("a snapshot has no root file system of its own")
    return Defaults()


def digest_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _existing(reference: str) -> Path:
    path = Path(reference)
    if not path.is_absolute():
        raise InvalidRequest(
            f"the template's source {reference!r} is not an absolute path",
            remediation="name it from the root of the host's file system",
        )
    if not path.exists():
        raise NotFound(
            f"the template's source {reference} does not exist",
            remediation="put it there, or change the template's reference",
        )
    return path


def _existing_file(reference: str) -> Path:
    path = _existing(reference)
    if not path.is_file():
        raise InvalidRequest(f"the template's source {reference} is no file")
    return path


def _existing_directory(reference: str) -> Path:
    path = _existing(reference)
    if not path.is_dir():
        raise InvalidRequest(f"the template's source {reference} is no directory")
    return path


def _copy_directory(source: Path, root: Path) -> None:
    with explained(root):
        copy_tree(source, root, how=("--reflink=auto", "--one-file-system"))
        os.chown(root, 0, 0)
        root.chmod(0o755)


def _hash_file(path: Path) -> str:
    with explained(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_directory(path: Path) -> str:
    digest = hashlib.sha256()
    waiting = [path]
    with explained(path):
        while waiting:
            here = waiting.pop()
            for entry in sorted(os.scandir(here), key=lambda each: each.name):
                found = entry.stat(follow_symlinks=False)
                is_directory = entry.is_dir(follow_symlinks=False)
                facts = [os.path.relpath(entry.path, path), found.st_mode, found.st_uid]
                facts += [found.st_gid, found.st_rdev, found.st_mtime_ns]
                facts += [0 if is_directory else found.st_size]
                digest.update(repr(facts).encode())
                if is_directory:
                    waiting.append(Path(entry.path))
    return digest.hexdigest()
