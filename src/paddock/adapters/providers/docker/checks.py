"""What the Docker provider needs of an engine, looked at one by one. Works where there is none."""

from collections.abc import Iterator

from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.nearness import (
    elsewhere,
    limits_disks,
    takes_our_filter,
    why_no_allowlist,
    why_not_joined,
)
from paddock.adapters.providers.docker.network import can_fence
from paddock.adapters.providers.host import agents
from paddock.adapters.providers.host.init import find_init
from paddock.domain.errors import PaddockError, Unsupported
from paddock.ports.provider import Finding, Health, Status

_INSTEAD = "pause keeps memory in RAM; a snapshot without memory keeps the disk"


async def check(config: DockerConfig) -> Health:
    """Everything that can be known of the engine; one that does not answer is a finding."""
    try:
        async with Engine(EngineAddress.find(config.host)) as engine:
            findings = tuple(_findings(config, engine))
    except PaddockError as error:
        findings = (Finding("engine", Status.MISSING, error.message, error.remediation),)
    return Health(all(finding.status is not Status.MISSING for finding in findings), findings)


def _findings(config: DockerConfig, engine: Engine) -> Iterator[Finding]:
    about = engine.about
    found = f"{about.product} at {engine.address.text}, API {about.version}"
    yield Finding("engine", Status.OK, found)
    yield _guest(config, engine)
    yield _seccomp(engine)
    yield _limits(engine)
    yield _disk(engine)
    yield _network(engine)
    yield _allowlist(config, engine)
    yield _runtime(config, engine)
    yield checkpoint(engine)
    if not elsewhere(engine):
        yield agents.finding()


def _guest(config: DockerConfig, engine: Engine) -> Finding:
    reason = why_not_joined(engine)
    if not reason:
        try:
            find_init(config.init, "docker.init")
        except PaddockError as error:
            reason = error.message
    if config.guest == "packed" or (config.guest == "auto" and reason):
        why = f" ({reason})" if reason else ""
        return Finding("guest", Status.OK, f"packed{why}: images need Python 3.9 or newer")
    if reason:
        fix = "run Paddock as root on the engine's host, or set docker.guest to auto"
        return Finding("guest", Status.MISSING, f"cannot be joined: {reason}", fix)
    return Finding("guest", Status.OK, "joined: images need no Python")


def _seccomp(engine: Engine) -> Finding:
    options = " ".join(engine.about.info.get("SecurityOptions") or ())
    if "seccomp" in options and takes_our_filter(engine):
        return Finding("seccomp", Status.OK, "the engine filters system calls as we ask")
    if "seccomp" in options:
        return Finding(
            "seccomp",
            Status.DEGRADED,
            "a Podman elsewhere takes no filter of ours; its own is in force",
            "run Paddock on Podman's host, or use Docker",
        )
    return Finding(
        "seccomp",
        Status.MISSING,
        "the engine cannot filter system calls",
        "use an engine and a kernel with seccomp",
    )


def _limits(engine: Engine) -> Finding:
    info = engine.about.info
    needed = {"MemoryLimit": "memory", "PidsLimit": "processes", "CpuCfsQuota": "processors"}
    if missing := [name for flag, name in needed.items() if info.get(flag) is False]:
        return Finding(
            "limits",
            Status.MISSING,
            f"the engine cannot limit {', '.join(missing)}",
            "boot the engine's host with these control groups enabled",
        )
    found = f"control groups version {info.get('CgroupVersion', '1')}"
    if info.get("SwapLimit") is False:
        return Finding(
            "limits",
            Status.DEGRADED,
            f"{found}; swap is not counted, so a sandbox may use more memory than asked for",
            "boot the engine's host with swapaccount=1, or without swap",
        )
    return Finding("limits", Status.OK, found)


def _disk(engine: Engine) -> Finding:
    driver = str(engine.about.info.get("Driver", "unknown"))
    if limits_disks(engine):
        return Finding("disk", Status.OK, f"{driver}; limits are enforced")
    return Finding("disk", Status.OK, f"{driver}; limits are watched, and a stop follows")


def _network(engine: Engine) -> Finding:
    if not why_not_joined(engine) and can_fence():
        return Finding(
            "open network", Status.OK, "kept from the host and from link-local addresses"
        )
    return Finding(
        "open network",
        Status.DEGRADED,
        "a sandbox with open egress may reach the engine's host and link-local addresses",
        "run Paddock as root on the engine's host with nftables installed, or keep egress closed",
    )


def _allowlist(config: DockerConfig, engine: Engine) -> Finding:
    joined = config.guest != "packed" and not why_not_joined(engine)
    if not (why := why_no_allowlist(engine, joined=joined)):
        return Finding("allowlists", Status.OK, "enforced by a gateway on this host")
    return Finding(
        "allowlists",
        Status.DEGRADED,
        f"off: {why}",
        "run Paddock as root on Docker's own host with libnftables1 installed, or use the network "
        "`none` or `open`",
    )


def _runtime(config: DockerConfig, engine: Engine) -> Finding:
    known = sorted(engine.about.info.get("Runtimes") or ())
    if config.runtime and config.runtime not in known:
        return Finding(
            "runtime",
            Status.MISSING,
            f"{config.runtime} is not known to the engine, which has {', '.join(known)}",
            "register it in the engine's daemon.json, or correct docker.runtime",
        )
    default = str(engine.about.info.get("DefaultRuntime", "unknown"))
    return Finding("runtime", Status.OK, config.runtime or default)


def checkpoint(engine: Engine) -> Finding:
    found = f"off: {_why_no_checkpoint(engine)}"
    if not engine.about.podman:
        offered = "on" if engine.about.info.get("ExperimentalBuild") else "off"
        found += f"; here: experimental features, of which it is one, are {offered}"
    return Finding("checkpoint to disk", Status.DEGRADED, found, _INSTEAD)


def _why_no_checkpoint(engine: Engine) -> str:
    if engine.about.podman:
        return "CRIU cannot write down a joined guest, and with a packed one it is not tried"
    return "Docker brings memory back only in the container that it was taken of"


def no_checkpoint(engine: Engine) -> Unsupported:
    return Unsupported(
        f"the docker provider keeps no memory on disk: {_why_no_checkpoint(engine)}",
        remediation=_INSTEAD,
    )
