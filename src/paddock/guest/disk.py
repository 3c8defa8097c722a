"""The guest's own files: small, private, and replaced as a whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from typing import Any

_LITTLE = 256 << 10


def make_private(path: str, mode: int = 0o700) -> None:
    """A directory of the guest's with exactly this mode."""
    with suppress(FileExistsError):
        os.mkdir(path, mode)
    os.chmod(path, mode)


def write_json(path: str, value: Any) -> None:
    part = f"{path}.part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb", buffering=0) as file:
        file.write(json.dumps(value, separators=(",", ":")).encode("ascii"))
    os.replace(part, path)


def read_json(path: str) -> Any:
    """None when there is no such file, or nothing in it that can be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return json.loads(file.read() or b"null")
    except (OSError, ValueError):
        return None


def is_full(directory: str) -> bool:
    """Whether not even a little more can be written, for want of space or of quota."""
    probe = f"{directory}/.probe"
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, _LITTLE)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        with suppress(OSError):
            os.unlink(probe)
    return False


def names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
