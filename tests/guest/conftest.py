"""Guests for the tests: one shared by all that leave it usable, and fresh ones for the others."""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from paddock.guest_client import Guest
from tests.conftest import Need
from tests.engines import base_root, open_local
from tests.guest.forms import GuestForm, PackedGuest
from tests.guest.joined import JoinedGuest
from tests.guest.raw import Raw
from tests.harness import ports

FORMS: dict[str, Callable[..., GuestForm]] = {"joined": JoinedGuest, "packed": PackedGuest}
"""Each form that passes these tests is a guest."""

# Both forms run the same code. What the packed one does with another process, another user or
# another file system is tried with every change, the rest of it in `make test-slow`.
PACKED_TOO = ("test_exec", "test_filesystem", "test_host")

StartGuest = Callable[..., Awaitable[GuestForm]]
StartPacked = Callable[..., Awaitable[PackedGuest]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_quick = metafunc.module.__name__.rpartition(".")[2] in PACKED_TOO
    packed = pytest.param("packed", marks=() if is_quick else pytest.mark.slow)
    for name, scope in (("shared", "session"), ("start_guest", "function")):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, ["joined", packed], indirect=True, scope=scope)


@pytest_asyncio.fixture(scope="session")
async def rootfs(need: Need) -> AsyncIterator[Path]:
    """The base template's, unless PADDOCK_TEST_ROOTFS names another with python3."""
    if os.geteuid() != 0:
        need("root", "to make the namespaces that the guest runs in")
    if "PADDOCK_TEST_ROOTFS" in os.environ:
        yield Path(os.environ["PADDOCK_TEST_ROOTFS"])
        return
    root = await base_root()
    # Whoever leaves last takes the pool along, and the template with it.
    async with open_local():
        yield root


@pytest_asyncio.fixture(scope="session")
async def shared(request: pytest.FixtureRequest, rootfs: Path) -> AsyncIterator[GuestForm]:
    """A guest that many tests use one after the other."""
    async with FORMS[request.param](rootfs) as form:
        yield form


@pytest_asyncio.fixture
async def guest(shared: GuestForm) -> AsyncIterator[Guest]:
    async with Guest(shared.address) as client:
        yield client


@pytest_asyncio.fixture
async def raw(shared: GuestForm) -> AsyncIterator[Raw]:
    """The same guest, spoken to in plain HTTP."""
    async with Raw(shared.address) as client:
        yield client


@pytest_asyncio.fixture
async def start_guest(request: pytest.FixtureRequest, rootfs: Path) -> AsyncIterator[StartGuest]:
    """Starts guests of one's own; all are gone when the test ends."""
    async with AsyncExitStack() as stack:

        async def start() -> GuestForm:
            return await stack.enter_async_context(FORMS[request.param](rootfs))

        yield start


@pytest_asyncio.fixture
async def start_packed(rootfs: Path) -> AsyncIterator[StartPacked]:
    """The same for what only the packed form has: a port, options, a file of its own."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> PackedGuest:
            return await stack.enter_async_context(PackedGuest(rootfs, **options))

        yield start


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def memory_cgroup(need: Need) -> Iterator[str]:
    """A memory cgroup of 96 MiB, where the host has cgroup v1 for memory."""
    path = Path(f"/sys/fs/cgroup/memory/paddock-test-{os.getpid()}")
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(96 << 20))
    except OSError as error:
        need("a writable cgroup v1 memory controller", str(error))
    yield str(path)
    for _ in range(50):
        try:
            path.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{path} could not be removed")
