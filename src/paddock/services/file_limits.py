"""What files and archives may be at most, and what is left out of exports: by setting."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from paddock.domain.errors import InvalidRequest, TooLarge

_OURS = ("/run/paddock", "/var/lib/paddock")
"""Where a guest keeps what it knows of its commands."""
_OUR_PREFIX = ".paddock-"
"""What the names of files begin with that we make on the way to something else."""


@dataclass(frozen=True, slots=True)
class FilesConfig:
    """Settings under `[files]`."""

    max_text_kib: int = 2048
    """The largest file that is given as text in an answer; a download may be of any size."""
    max_upload_mib: int = 10_240
    """The largest file, or unpacked archive, that is taken; 0 leaves it to the sandbox's disk."""
    excluded: tuple[str, ...] = (
        ".cache",
        ".git",
        ".mypy_cache",
        ".next",
        ".pytest_cache",
        ".ruff_cache",
        ".turbo",
        ".venv",
        ".vite",
        "__pycache__",
        "node_modules",
    )
    """Names, which may be patterns: deep listings do not enter them, zip files leave them out."""


def check_path(path: str) -> None:
    """Whether something may be written, moved or removed there; InvalidRequest where it is ours."""
    parts = path.split("/")
    if any(part.startswith(_OUR_PREFIX) for part in parts):
        raise _reserved(path, f"names that begin with {_OUR_PREFIX}")
    plain = "/" + "/".join(part for part in parts if part not in ("", "."))
    if path.startswith("/") and any(f"{plain}/".startswith(f"{place}/") for place in _OURS):
        raise _reserved(path, "the directories of the guest")


def _reserved(path: str, what: str) -> InvalidRequest:
    shown = path.encode("utf-8", "backslashreplace").decode()[:200]
    return InvalidRequest(
        f"{shown} is reserved: {what} are Paddock's own", remediation="choose another name"
    )


async def capped(pieces: AsyncIterator[bytes], most_mib: int) -> AsyncIterator[bytes]:
    """The same pieces; TooLarge as soon as they are more than that, 0 being no limit."""
    taken = 0
    async for piece in pieces:
        taken += len(piece)
        if most_mib and taken > most_mib << 20:
            raise TooLarge(
                f"an upload has at most {most_mib} MiB here, and this one has more",
                remediation="send less, or have the setting files.max_upload_mib raised",
            )
        yield piece
