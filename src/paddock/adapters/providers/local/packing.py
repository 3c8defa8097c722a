"""A volume as one compressed file, and back: everything that root can see of it."""

import asyncio
import os
import shutil
from pathlib import Path

from paddock.adapters.providers.local.records import persist
from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.volumes import PARTS
from paddock.adapters.providers.local.templates.programs import ProgramFailed, run
from paddock.domain.errors import (
    Broken,
    LimitExceeded,
    PaddockError,
    QuotaExceeded,
    Unavailable,
    Unsupported,
)

_PROGRAMS = ("tar", "zstd", "prlimit")
_INSTALL = "apt install tar zstd util-linux, then start again"
_WORK = "work"
_FAITHFUL = ("--numeric-owner", "--acls", "--xattrs", "--xattrs-include=*")
# What tar can name when it unpacks, less a file's own name; packing knows no such limit.
_LONGEST_DIRECTORY = 3700
_RESERVE = 256 << 20
_RESERVED_SHARE = 20


def available() -> bool:
    return not _missing()


def refusal() -> Unsupported:
    return Unsupported(
        f"this host cannot archive sandboxes: {', '.join(_missing())} is not installed",
        remediation=_INSTALL,
    )


def _missing() -> list[str]:
    return [name for name in _PROGRAMS if not shutil.which(name)]


async def pack(volume: Path, file: Path) -> None:
    """Into a new file that is on the disk when this returns; the overlay's `work` begins anew.

    Some room is left on the disk: the image of a pool may lie on it, which breaks when it cannot
    grow. Whoever waits for other things goes first.
    """
    _check_programs()
    await _check_names(volume)
    most = free(file.parent)
    with explained(file):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    command = ["nice", "prlimit", f"--fsize={most}", "--", "tar", "--create", "--sparse"]
    command += [*_FAITHFUL, "--use-compress-program=zstd -3 -T0", "--file", str(file)]
    try:
        await run([*command, "--directory", str(volume), "--", *_parts()])
    except ProgramFailed as failure:
        full = file.stat().st_size > most - (1 << 20)
        raise _explain(file, failure, full=full) from failure
    with explained(file):
        await asyncio.to_thread(persist, file)


async def unpack(file: Path, volume: Path) -> None:
    """Into an empty volume. It is our own file: its names are those of a tree that there was."""
    _check_programs()
    # By absolute names tar means any link that leads out; it would make those in the end only.
    command = ["tar", "--extract", "--absolute-names", "--same-owner", "--same-permissions"]
    command += [*_FAITHFUL, "--use-compress-program=zstd", "--file", str(file)]
    try:
        await run([*command, "--directory", str(volume), "--", *_parts()])
        await run(["sync", "--file-system", str(volume)])
    except ProgramFailed as failure:
        raise _explain(volume, failure) from failure


def free(place: Path) -> int:
    """The bytes that may be used of a disk that others need as well."""
    with explained(place):
        disk = os.statvfs(place)
    reserve = min(_RESERVE, disk.f_blocks * disk.f_frsize // _RESERVED_SHARE)
    return max(0, disk.f_bavail * disk.f_frsize - reserve)


def _parts() -> list[str]:
    return [part for part in PARTS if part != _WORK]


def _check_programs() -> None:
    if missing := _missing():
        raise Unavailable(
            f"{', '.join(missing)} is needed for archives and is not installed",
            remediation=_INSTALL,
        )


async def _check_names(volume: Path) -> None:
    """An archive that cannot be unpacked any more would be a loss."""
    too_long = "?" * (len(str(volume)) + _LONGEST_DIRECTORY) + "*"
    places = [str(volume / part) for part in _parts()]
    command = ["find", *places, "-type", "d", "-path", too_long, "-print", "-quit"]
    try:
        found = await run(command)
    except ProgramFailed as failure:
        raise _explain(volume, failure) from failure
    if found:
        raise LimitExceeded(
            f"sandbox {volume.name} has directories within directories whose names together are "
            f"longer than {_LONGEST_DIRECTORY} characters, and tar could not unpack them again",
            remediation="start it and remove or move them; the sandbox is stopped as before",
        )


def _explain(place: Path, failure: ProgramFailed, *, full: bool = False) -> PaddockError:
    said = failure.mentions("no space left", "disk quota exceeded", "wrote only")
    if full or said:
        return QuotaExceeded(
            f"there is no room for {place}: {said or 'what is left of the disk others need'}",
            remediation="delete sandboxes or snapshots that are no longer needed, or enlarge the "
            "disk; the sandbox is as it was",
        )
    return Broken(
        f"the program that works on {place} ended with {failure.status}",
        remediation=f"its last lines:\n    {failure.last_lines()}",
    )
