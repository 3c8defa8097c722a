"""How a fork of the zygote becomes the guest of a sandbox.

The order is the safety of it: accounting files and cgroups first, while the host's files can
still be opened; not dumpable and without any other descriptor before the namespaces are entered;
capabilities and seccomp as every other process of the sandbox has them before anything is served.
"""

import contextlib
import gc
import os
import resource
import signal
import socket
from dataclasses import dataclass

from paddock.adapters.providers.host import syscalls, user_namespaces
from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.host.routes import raise_loopback
from paddock.guest.config import GuestConfig
from paddock.guest.server import serve

_NAMESPACES = {
    "user": syscalls.CLONE_NEWUSER,
    "cgroup": syscalls.CLONE_NEWCGROUP,
    "ipc": syscalls.CLONE_NEWIPC,
    "uts": syscalls.CLONE_NEWUTS,
    "net": syscalls.CLONE_NEWNET,
    "pid": syscalls.CLONE_NEWPID,
    "mnt": syscalls.CLONE_NEWNS,
}
IN = "in"
"""What a guest says when it has arrived; one that is killed on its way says nothing."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Join:
    """Everything the guest of one sandbox needs to know, as the control plane sends it."""

    init: Process
    """The sandbox's own, as the host sees it."""
    config: dict[str, object]
    """The fields of GuestConfig, without `accounting`."""
    capabilities: tuple[int, ...]
    no_new_privs: bool
    cgroup_procs: tuple[str, ...]
    """One `cgroup.procs` for each hierarchy."""
    accounting: dict[str, str]
    """Names to files of the sandbox's cgroups that the guest may read."""
    nofile: int = 0
    """Most files that the guest and its commands may have open; 0 leaves the launcher's limit."""


def become_guest(join: Join, listener: socket.socket, seccomp: bytes, report: int) -> None:
    """Run in a fresh fork; never returns. `report` gets `IN`, or an error's text."""
    try:
        accounting = _prepare(join, listener, report)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            syscalls.set_dumpable(False)
        entered_user_namespace = _enter(join.init)
        # Only children are born into a process namespace that was entered. The second of them is
        # orphaned at once, inside it, so that the sandbox's own init becomes the guest's parent:
        # the sandbox can then end without waiting for anybody outside to reap the guest.
        _fork_and_leave(wait=True)
        _fork_and_leave(wait=False)
        accounting["oom_score_adj"] = _open_oom_score()
        _confine(join, seccomp, entered_user_namespace)
        config = GuestConfig(**join.config, accounting=accounting)  # type: ignore[arg-type]
    except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher must hear of it
        with contextlib.suppress(OSError):
            os.write(report, f"{type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)
    try:
        os.write(report, IN.encode())
    except BrokenPipeError:
        os._exit(1)  # it took so long that nobody waits any more
    os.close(report)
    serve(config, listener)
    os._exit(0)


def _prepare(join: Join, listener: socket.socket, report: int) -> dict[str, int]:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    accounting = {}
    for name, path in join.accounting.items():
        with contextlib.suppress(FileNotFoundError):
            accounting[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    for path in join.cgroup_procs:
        _enter_cgroup(path)
    _close_all_but({listener.fileno(), report, *accounting.values()})
    return accounting


def _enter_cgroup(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def _close_all_but(kept: set[int]) -> None:
    # Standard streams first: nothing of the host's may be left on them.
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        if stream != null:
            os.dup2(null, stream)
    low = 3
    for fd in sorted(fd for fd in kept if fd > 2):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _enter(init: Process) -> bool:
    """Enter every namespace in which the sandbox's init differs from the host's."""
    with init.opened() as pidfd:
        kinds = sum(kind for name, kind in _NAMESPACES.items() if not _is_ours(init.pid, name))
        missing = (syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET) & ~kinds
        if missing:
            raise RuntimeError(
                f"process {init.pid} is not in a sandbox (namespaces {missing:#x} are ours)"
            )
        with user_namespaces.limits() as limits:
            syscalls.setns(pidfd, kinds)
            if not kinds & syscalls.CLONE_NEWUSER:
                return False
            user_namespaces.set_limits(limits)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    return True


def _is_ours(pid: int, namespace: str) -> bool:
    ours, theirs = (os.stat(f"/proc/{who}/ns/{namespace}") for who in ("self", pid))
    return os.path.samestat(ours, theirs)


def _fork_and_leave(*, wait: bool) -> None:
    child = os.fork()
    if child == 0:
        return
    if wait:
        os.waitpid(child, 0)
    os._exit(0)


def _open_oom_score() -> int:
    """The file by which the guest makes its commands likelier to be killed than itself.

    The kernel lets only its own root open it for a process that is not dumpable, so this process
    is dumpable for this one call: nothing but the sandbox's init runs yet.
    """
    syscalls.set_dumpable(True)
    try:
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    finally:
        syscalls.set_dumpable(False)


def _confine(join: Join, seccomp: bytes, entered_user_namespace: bool) -> None:
    os.chdir("/")
    os.setsid()
    os.umask(0o022)
    with contextlib.suppress(PermissionError):
        raise_loopback()
    if not entered_user_namespace:
        os.setgroups([])
    syscalls.set_title("paddock-guest")
    os.environ.clear()
    os.environ.update(PATH=_PATH, HOME="/root", LANG="C.UTF-8")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if join.nofile:
        most = join.nofile if most == resource.RLIM_INFINITY else min(most, join.nofile)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    syscalls.drop_bounding(join.capabilities)
    if join.no_new_privs:
        syscalls.set_no_new_privs()
    syscalls.load_seccomp(seccomp)
    syscalls.set_capabilities(join.capabilities)
    # A change of credentials makes a process dumpable again.
    syscalls.set_dumpable(False)
    gc.enable()
