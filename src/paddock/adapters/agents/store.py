"""Agents in a directory of this host, each in one of its own that appears as a whole.

Sandboxes see the directory. So the locks are elsewhere: to hold one it is enough to read it.
"""

import asyncio
import errno
import fcntl
import json
import os
import platform
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from paddock.adapters.agents import npm, trial
from paddock.domain.agent import Package
from paddock.domain.errors import Broken, LimitExceeded, Unavailable
from paddock.ports.agent_store import Installed, Progress

_BIN = "bin"
_NOTE = "paddock.json"
_MODULES = "node_modules"
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_TOLD_EVERY_S = 2.0


class NpmAgentStore:
    """An `AgentStore` that is filled by npm."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._locks = self._directory.with_name(f"{self._directory.name}.locks")

    def why_not(self) -> str:
        return npm.why_not()

    async def find(self, package: Package) -> Installed | None:
        return await asyncio.to_thread(self._find, package)

    async def install(self, package: Package, progress: Progress) -> Installed:
        with _explained(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)

        def waits() -> None:
            progress(f"waiting for another who installs {package}", None)

        before = await self.find(package)
        async with self._turn(_name(package), waits) as lock:
            # One that appeared meanwhile was tried by whoever has installed it.
            found = None if before else await self.find(package)
            if found := found or await self._working(package, progress):
                return found
            # Whoever made one before has no lock any more, and so is gone.
            draft = self._directory / f".{_name(package)}"
            try:
                await self._fill(package, draft, lock=lock, progress=progress)
                program = await _tried(package, draft, progress)
                return await asyncio.to_thread(self._put, package, draft, program)
            finally:
                await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)

    def _place(self, package: Package) -> Path:
        return self._directory / _name(package)

    def _find(self, package: Package) -> Installed | None:
        place = self._place(package)
        try:
            note = json.loads((place / _NOTE).read_text())
            program, size = str(note["program"]), int(note["size"])
            seen = (place / program).stat()
        except (OSError, ValueError, TypeError, LookupError):
            return None
        if seen.st_size != size or not seen.st_mode & stat.S_IXOTH:
            return None
        with suppress(OSError):  # without write access the program still works by its path
            _link(place, program)
        return Installed(package, f"{place.name}/{program}")

    async def _working(self, package: Package, progress: Progress) -> Installed | None:
        """What is there already, whoever put it there, if it answers."""
        place = self._place(package)
        if not place.is_dir():
            return None
        progress(f"trying {package}, which is there", None)
        for program in _programs(place, package):
            if not await trial.why_not(place, program):
                await asyncio.to_thread(_note, package, place, program)
                return Installed(package, f"{place.name}/{program}")
        progress(f"{package} is there, but does not answer", None)
        return None

    async def _fill(self, package: Package, draft: Path, *, lock: int, progress: Progress) -> None:
        with _explained(draft):
            await asyncio.to_thread(_begin, draft)
        progress(f"npm installs {package}", None)
        watching = asyncio.create_task(_watch(package, draft, progress))
        try:
            await npm.install(package, draft, [lock])
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        with _explained(draft):
            await asyncio.to_thread(_open_to_all, draft)

    def _put(self, package: Package, draft: Path, program: str) -> Installed:
        place = self._place(package)
        with _explained(place):
            _note(package, draft, program)
            if place.exists():  # it does not work; who has it open keeps it
                aside = place.with_name(f".{place.name}.broken")
                shutil.rmtree(aside, ignore_errors=True)
                place.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
            draft.rename(place)
            _link(place, program)
        return Installed(package, f"{place.name}/{program}")

    @asynccontextmanager
    async def _turn(self, name: str, waits: Callable[[], None]) -> AsyncIterator[int]:
        """One at a time of all processes of this host; the kernel lets go when one dies."""
        with _explained(self._locks):
            self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            pause = 0.0
            while not _locked(lock):
                if not pause:
                    waits()
                pause = min(2 * pause, _LONGEST_PAUSE_S) or _FIRST_PAUSE_S
                await asyncio.sleep(pause)
            yield lock
        finally:
            os.close(lock)


async def _tried(package: Package, draft: Path, progress: Progress) -> str:
    """The first of its programs that works here: some packages bring several."""
    progress(f"trying {package}", None)
    machine, why = f"{platform.system()} on {platform.machine()}", ""
    for program in _programs(draft, package):
        if not (why := await trial.why_not(draft, program)):
            return program
    if why:
        raise Broken(
            f"{package} does not work on this host, which is {machine}: {why}",
            remediation="see what its maker asks of a host, or use another agent",
        )
    raise Broken(
        f"{package} has no program for {machine}: nothing is at {package.program}",
        remediation="use another agent on this machine",
    )


def _name(package: Package) -> str:
    return f"{package.name.strip('@').replace('/', '-')}-{package.version}"


def _programs(place: Path, package: Package) -> list[str]:
    found = sorted((place / _MODULES).glob(package.program))
    return [str(each.relative_to(place)) for each in found if each.is_file()]


def _note(package: Package, place: Path, program: str) -> None:
    """What says that it is whole, and how to see later whether it still is."""
    told = {"package": str(package), "program": program, "size": (place / program).stat().st_size}
    draft = place / f".{_NOTE}"
    draft.write_text(json.dumps(told))
    draft.chmod(0o644)
    draft.rename(place / _NOTE)


def _link(place: Path, program: str) -> None:
    """The directory `bin` beside it has its program by name; sandboxes have that on their PATH."""
    target = Path("..", place.name, program)
    link = place.with_name(_BIN) / target.name
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(mode=0o755, exist_ok=True)
    link.parent.chmod(0o755)
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.rename(link)


def _begin(draft: Path) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o755)


def _open_to_all(draft: Path) -> None:
    """Everyone may read it, and execute what is a program; nobody becomes another user by it."""
    for directory, _, names in os.walk(draft):
        Path(directory).chmod(0o755)
        for name in names:
            file = Path(directory, name)
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o111 else 0o644)


async def _watch(package: Package, draft: Path, progress: Progress) -> None:
    while True:
        await asyncio.sleep(_TOLD_EVERY_S)
        size = await asyncio.to_thread(_size, draft)
        progress(f"npm installs {package}: {size >> 20} MiB so far", None)


def _size(draft: Path) -> int:
    total = 0
    for directory, _, names in os.walk(draft):
        for name in names:
            with suppress(OSError):  # npm moves things about
                total += Path(directory, name).lstat().st_size
    return total


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _explained(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LimitExceeded(
                f"there is no room for agents in {place.parent}",
                remediation="free some of the disk, or set agents.dir to a larger one",
            ) from error
        raise Unavailable(
            f"agents cannot be kept in {place.parent}: {error.strerror}",
            remediation="set agents.dir to a directory that this user can write to",
        ) from error
