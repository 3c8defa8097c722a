"""Putting the Docker provider together: what the engine and this host are able to do."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.adapters.egress.authority import Authority
from paddock.adapters.egress.gateway import HostGateway
from paddock.adapters.providers.docker import nearness, records
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.fencing import Fencing, Policy
from paddock.adapters.providers.docker.images import Images, ImageSource
from paddock.adapters.providers.docker.joined import JoinedGuests
from paddock.adapters.providers.docker.life import Life, Limits
from paddock.adapters.providers.docker.machine import Machines
from paddock.adapters.providers.docker.names import PROVIDER, Names
from paddock.adapters.providers.docker.network import OpenNetwork, can_fence
from paddock.adapters.providers.docker.notes import Note
from paddock.adapters.providers.docker.packed import PackedGuests
from paddock.adapters.providers.docker.place import Place
from paddock.adapters.providers.docker.slips import Slips
from paddock.adapters.providers.docker.snapshots import Snapshots
from paddock.adapters.providers.host.agents import open_to_all
from paddock.adapters.providers.host.fences import Fences
from paddock.adapters.providers.host.init import find_init
from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.domain.errors import InvalidRequest, PaddockError
from paddock.domain.sandbox import Resources

_INSTALLATION = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UNKNOWN = 1 << 40
_MOST_PIDS = 4_194_304
GatewayAt = Callable[[Path, Authority], HostGateway]
"""The gateway of the installation whose volatile directory and authority these are."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the provider is made of."""

    config: DockerConfig
    engine: Engine
    life: Life
    snapshots: Snapshots
    gateway: HostGateway | None

    @property
    def near(self) -> bool:
        """Whether processes of the engine's containers are processes of this host."""
        return not nearness.elsewhere(self.engine)

    @property
    def enterable(self) -> bool:
        """Whether this process may also enter their namespaces."""
        return not nearness.why_not_joined(self.engine)

    def check_runtime(self, runtime: str) -> None:
        known = self.engine.about.info.get("Runtimes") or {}
        if runtime and runtime not in known:
            raise InvalidRequest(
                f"the engine has no runtime called {runtime!r}",
                remediation=f"choose one of: {', '.join(sorted(known))}",
            )

    def most(self) -> Resources:
        """All that the engine's host has: no sandbox can be given more."""
        info = self.engine.about.info
        return Resources(
            cpus=float(info.get("NCPU") or _UNKNOWN),
            memory_mib=int(info.get("MemTotal") or _UNKNOWN << 20) >> 20,
            disk_mib=_disk_mib(info) if self.near else _UNKNOWN,
            pids=_MOST_PIDS,
        )

    async def aclose(self) -> None:
        await self.life.machines.aclose()
        if self.gateway is not None:
            await self.gateway.aclose()
        await self.engine.aclose()
        self.life.place.close()


async def open_parts(
    config: DockerConfig,
    source: ImageSource,
    on_step: Callable[[str], None],
    gateway_at: GatewayAt,
    *,
    agents: Path | None,
) -> Parts:
    engine = await Engine(EngineAddress.find(config.host)).__aenter__()
    try:
        names = _names(config)
        place = Place.open(config, names)
    except BaseException:
        await engine.aclose()
        raise
    try:
        joined = _joined(config, engine, place)
        why_no_allowlist = nearness.why_no_allowlist(engine, joined=joined is not None)
        gateway = None
        if joined is not None and not why_no_allowlist:
            gateway, joined = _trusting(joined, gateway_at)
        slips = Slips(engine, names, Policy, kind=records.POLICY, called="egress")
        fences = Fences(gateway) if gateway is not None else None
        machines = Machines(
            engine=engine,
            place=place,
            network=_network(config, engine, names, gateway),
            notes=Slips(engine, names, Note, kind=records.NOTE, called="stopped"),
            joined=joined,
            packed=PackedGuests(place, engine),
            fencing=Fencing(slips, fences, why_no_allowlist),
            on_step=on_step,
        )
        life = _life(config, machines, source, _shown(engine, agents))
    except BaseException:
        place.close()
        await engine.aclose()
        raise
    return Parts(config, engine, life, Snapshots(life), gateway)


def _names(config: DockerConfig) -> Names:
    if not _INSTALLATION.fullmatch(config.installation):
        raise InvalidRequest(
            f"docker.installation is {config.installation!r}, which is not usable",
            remediation="use 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'",
        )
    return Names(config.installation)


def _network(
    config: DockerConfig, engine: Engine, names: Names, gateway: HostGateway | None
) -> OpenNetwork:
    fenced = not nearness.why_not_joined(engine) and can_fence()
    uid = gateway.config.gateway_uid if gateway is not None else 0
    return OpenNetwork(engine, names, config.open_subnet, fenced, uid)


def _shown(engine: Engine, agents: Path | None) -> Path | None:
    """An engine elsewhere has no directory of this host."""
    return open_to_all(agents) if agents and not nearness.elsewhere(engine) else None


def _life(
    config: DockerConfig, machines: Machines, source: ImageSource, agents: Path | None
) -> Life:
    engine, place, names = machines.engine, machines.place, Names(config.installation)
    return Life(
        provider=PROVIDER,
        engine=engine,
        names=names,
        place=place,
        images=Images(engine, names, source, registries=config.registries),
        network=machines.network,
        notes=machines.notes,
        machines=machines,
        limits=Limits(
            nofile=nearness.most_files(engine, config.nofile),
            seccomp=nearness.seccomp(engine, place),
            nproc=nearness.most_processes(engine),
            usable_cpus=nearness.usable_cpus(engine),
            tmp_mib=config.tmp_mib,
            limit_disk=nearness.limits_disks(engine),
            runtime=config.runtime,
            agents=agents,
        ),
        on_step=machines.on_step,
    )


def _joined(config: DockerConfig, engine: Engine, place: Place) -> JoinedGuests | None:
    if config.guest == "packed":
        return None
    reason = nearness.why_not_joined(engine)
    try:
        init = "" if reason else find_init(config.init, "docker.init")
    except PaddockError as error:
        reason, init = error.message, ""
    if not reason:
        # Unlike on the local provider it does not hold the owner's lock: a guest that it is just
        # forking into a container goes with the container.
        launch = LaunchControl(place.run)
        return JoinedGuests(place, launch, init, nearness.most_files(engine, config.nofile))
    if config.guest == "joined":
        raise InvalidRequest(
            f"docker.guest is joined, but a guest cannot be joined here: {reason}",
            remediation="set docker.guest to auto or packed",
        )
    return None


def _trusting(joined: JoinedGuests, gateway_at: GatewayAt) -> tuple[HostGateway, JoinedGuests]:
    """A gateway that may look into TLS, and guests whose programs trust it.

    Containers are told whom to trust at every start, so the authority need not last any longer
    than the directory that all control planes of the installation share.
    """
    authority = Authority.of(joined.place.run)
    made = gateway_at(joined.place.run, authority)
    return made, replace(joined, authority=authority.certificate)


def _disk_mib(info: Mapping[str, Any]) -> int:
    with suppress(OSError):
        disk = os.statvfs(Path(str(info.get("DockerRootDir"))))
        return max(16, disk.f_blocks * disk.f_frsize >> 20)
    return _UNKNOWN
