"""Providers with a fence, each opened for real."""

import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paddock.adapters.providers.local.runtime import installed, outdated
from paddock.ports.provider import Isolation, Provider
from tests.adapters.providers.docker.conftest import (  # noqa: F401 - fixtures by name
    Installation,
    base_image,
    engine_host,
)
from tests.conftest import Need
from tests.engines import DATA, open_local


@dataclass
class Fenced:
    """A provider under attack."""

    provider: Provider
    template: str = "base"
    data_directories: list[Path] = field(default_factory=list)

    @property
    def has_own_kernel(self) -> bool:
        """What it does to that kernel, or sees of it, is nobody else's business."""
        return self.provider.capabilities.isolation is Isolation.USER_KERNEL

    def host_addresses(self) -> set[str]:
        """Addresses of this host that a program inside might try."""
        found = set()
        for _, name in socket.if_nameindex():
            if name == "eth0":
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                    probe.connect(("192.0.2.1", 9))
                    found.add(probe.getsockname()[0])
        return found


@pytest.fixture(
    scope="module",
    params=[
        "local-crun",
        *(pytest.param(f"local-{each}", marks=pytest.mark.slow) for each in ("runc", "runsc")),
        "docker",
    ],
)
async def fenced(request: pytest.FixtureRequest, need: Need) -> AsyncIterator[Fenced]:
    kind, _, runtime = request.param.partition("-")
    if kind == "local":
        if runtime not in installed():
            need(runtime, "not installed")
        if why := outdated(installed()[runtime]):
            need(runtime, why)
        async with open_local(runtime=runtime) as provider:
            yield Fenced(provider, data_directories=[DATA, Path("/var/lib/paddock/sandboxes")])
        return
    request.getfixturevalue("base_image")
    host = request.getfixturevalue("engine_host")
    installation = Installation(host, Path(tempfile.mkdtemp(prefix="paddock-fence-")))
    try:
        async with installation.opened() as engine:
            yield Fenced(engine, data_directories=[DATA, installation.run_root])
        await installation.empty()
    finally:
        shutil.rmtree(installation.run_root, ignore_errors=True)
