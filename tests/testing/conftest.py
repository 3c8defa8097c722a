"""Places for providers: short paths, because sockets lie in them, and nothing left in the end."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from paddock.guest.pack import build


@pytest.fixture(scope="session")
def guest_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once: every new place would otherwise build its own."""
    return Path(build(str(tmp_path_factory.mktemp("guest") / "guest.zip")))


@pytest.fixture(scope="class")
def place(guest_zip: Path) -> Iterator[Path]:
    with _place(guest_zip) as directory:
        yield directory


@pytest.fixture
def fresh_place(guest_zip: Path) -> Iterator[Path]:
    with _place(guest_zip) as directory:
        yield directory


@contextmanager
def _place(guest_zip: Path) -> Iterator[Path]:
    """A directory, and the end of whatever a broken provider has left running in it."""
    directory = Path(tempfile.mkdtemp(prefix="pdk-"))
    (directory / "guest.zip").symlink_to(guest_zip)
    try:
        yield directory
    finally:
        _end_all_below(directory)
        shutil.rmtree(directory)


def _end_all_below(directory: Path) -> None:
    """Guests have the directory in their command line, what they started in its environment."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if entry.name.isdigit() and str(directory).encode() in said:
                os.kill(int(entry.name), signal.SIGKILL)
