"""The guest's own files: small, private, and replaced as a whole or not at all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any


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


def names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def remove_tree(path: str) -> None:
    """A directory of the guest's with all in it; absent is success. Links are not followed."""
    try:
        with os.scandir(path) as entries:
            found = list(entries)
    except FileNotFoundError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
    with suppress(FileNotFoundError):
        os.rmdir(path)
