"""Whether an engine is on this host, and what that allows."""

import os
import resource
from pathlib import Path

from paddock.adapters.providers.docker import container as containers
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.place import Place
from paddock.adapters.providers.host import nftables, visible_limits


def elsewhere(engine: Engine) -> str:
    """Why the engine is taken for one on another host; empty when it is on this one."""
    if not engine.address.socket:
        return "the engine is reached over the network"
    name, kernel = (str(engine.about.info.get(key)) for key in ("Name", "KernelVersion"))
    here = os.uname()
    if (name, kernel) != (here.nodename, here.release):
        return f"the engine runs on another host, {name}"
    return ""


def why_not_joined(engine: Engine) -> str:
    """Why guests cannot come in from this host; empty when they can."""
    return "this is not root" if os.geteuid() != 0 else elsewhere(engine)


def why_no_allowlist(engine: Engine, *, joined: bool) -> str:
    """Why no fence can be put around a container from this host; empty when it can."""
    if reason := why_not_joined(engine):
        return reason
    if not joined:
        return "guests are packed into their images"
    if engine.about.podman:
        return "Podman gives a container its network when it is made and not afterwards"
    return "" if nftables.available() else "libnftables is not installed"


def most_files(engine: Engine, wish: int) -> int:
    """An engine without the right to raise limits refuses more than its own; ours is like it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return wish if elsewhere(engine) or most == resource.RLIM_INFINITY else min(wish, most)


def most_processes(engine: Engine) -> int:
    """Podman by itself asks for more than a root without CAP_SYS_RESOURCE is granted; as many as
    the kernel can number at all are enough for everybody. 0 where it need not be said."""
    if not engine.about.podman or elsewhere(engine):
        return 0
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    numbered = int(Path("/proc/sys/kernel/pid_max").read_text())
    return numbered if most == resource.RLIM_INFINITY else min(most, numbered)


def usable_cpus(engine: Engine) -> tuple[int, ...]:
    """CPUs that containers can be bound to. Empty where the engine cannot do so, which without
    root is usual, or where its CPUs are not known because it is on another host."""
    info = engine.about.info
    rootless = any("rootless" in str(each) for each in info.get("SecurityOptions") or ())
    if elsewhere(engine) or rootless or not info.get("CPUSet"):
        return ()
    return visible_limits.usable_cpus()


def takes_our_filter(engine: Engine) -> bool:
    """Podman wants a file on its own host; where we cannot put one, its default profile holds."""
    return not (engine.about.podman and elsewhere(engine))


def seccomp(engine: Engine, place: Place) -> str:
    """The filter as the engine takes it: the text of it, or a path."""
    if not takes_our_filter(engine):
        return ""
    if not engine.about.podman:
        return containers.seccomp_profile()
    path = place.run / "seccomp.json"
    draft = path.with_name(f".{path.name}-{place.owner.id}")
    draft.write_text(containers.seccomp_profile())
    draft.rename(path)
    return str(path)


def limits_disks(engine: Engine) -> bool:
    """Only with btrfs under it can a container's disk be limited without asking the operator for
    special mount options; with the others it is watched."""
    return engine.about.info.get("Driver") == "btrfs"
