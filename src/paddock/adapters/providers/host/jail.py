"""Run a program in a jail: enter new namespaces, give up root, then execute bubblewrap.

Programs that read untrusted data, such as an image, run in a jail. They run as another user, have
no network except the listeners created here, and see no host files except those shown to them.
Files in the scratch directory have the owners that they are given inside.
"""

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from paddock.adapters.providers.host import syscalls, user_namespaces
from paddock.adapters.providers.host.routes import raise_loopback

FIRST_ID, IDS = 0x7FFE0000, 65536
"""IDs on this host that belong to no user; they follow the ranges of sandboxes."""
_BOOTSTRAP = (
    "import sys; sys.path[:0] = sys.argv.pop().split(':'); "
    "sys.modules.update(dict.fromkeys(('ssl', '_ssl', '_hashlib'))); "
    "from paddock.adapters.providers.host.jail import main; main(sys.argv[1])"
)
_HELD = Path("/tmp")  # noqa: S108 - every host has it, and this one is the jail's own
_SCRATCH, _SOURCE = _HELD / "scratch", _HELD / "source"
_MOST_MEMORY = 4 << 30
_MOST_PROCESSES = 4096
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP")
_INERT = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
_NAMESPACES = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWCGROUP
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One program in a jail."""

    command: tuple[str, ...]
    options: tuple[str, ...]
    """Options for bubblewrap, in addition to those of every jail."""
    scratch: str = ""
    """A directory that the program sees as /scratch and may write to."""
    source: str = ""
    """A file or directory that the program sees as /source."""
    owners: bool = False
    """Whether the program may change the owners of files in the scratch directory."""
    listeners: tuple[tuple[str, int], ...] = ()
    """Addresses on the jail's loopback. The listening sockets are sent over `channel`."""
    channel: int = -1
    most_bytes: int = 0
    """The largest file that the program may write; 0 sets no limit."""
    groups: tuple[str, ...] = ()
    """Files of the control group that limits the whole jail; writing 0 to them joins it."""

    def argv(self) -> list[str]:
        if os.geteuid() == 0:
            paths = ":".join(path for path in sys.path if path and Path(path).is_dir())
            return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, json.dumps(asdict(self)), paths]
        # Without root the program keeps the caller's ID, and no listeners can be created.
        limits = [f"--{name}={most}" for name, most in self._limits()]
        return ["prlimit", *limits, "--", *self.bubblewrap(self.scratch, self.source)]

    def _limits(self) -> Iterator[tuple[str, int]]:
        yield from (("core", 0), ("data", _MOST_MEMORY))
        if self.most_bytes:
            yield ("fsize", self.most_bytes)

    def limit(self) -> None:
        for group in self.groups:
            Path(group).write_text("0")
        # For all jails together, which have the same ID. The control group limits each of them.
        resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_PROCESSES, _MOST_PROCESSES))
        for name, most in self._limits():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (most, most))

    def bubblewrap(self, scratch: str, source: str) -> list[str]:
        """Return the command line, with these paths as scratch directory and source."""
        argv = ["bwrap", "--unshare-pid", "--die-with-parent", "--new-session", "--clearenv"]
        if os.geteuid() == 0:
            argv += ["--cap-drop", "ALL"]
            for name in _CAPABILITIES if self.owners else ():
                argv += ["--cap-add", f"CAP_{name}"]
        else:
            argv += ["--unshare-user", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        argv += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        for path in (Path("/", name) for name in ("bin", "sbin", "lib", "lib32", "lib64")):
            if path.is_symlink():
                argv += ["--symlink", str(path.readlink()), str(path)]
            elif path.is_dir():
                argv += ["--ro-bind", str(path), str(path)]
        if self.scratch:
            argv += ["--bind", scratch, "/scratch"]
        if self.source:
            argv += ["--ro-bind", source, "/source"]
        return [*argv, *self.options, "--remount-ro", "/", "--", *self.command]


def main(text: str) -> None:
    plan = Plan(**json.loads(text))
    plan.limit()
    _give_up_root(plan)
    argv = plan.bubblewrap(str(_SCRATCH), str(_SOURCE))
    os.execvp(argv[0], argv)  # noqa: S606 - it takes the place of this process


def _give_up_root(plan: Plan) -> None:
    """Enter a user namespace whose root has no rights on this host, then the other namespaces."""
    trees: list[tuple[int, Path]] = []
    is_file = bool(plan.source) and Path(plan.source).is_file()
    with user_namespaces.mapped(FIRST_ID, IDS) as namespace:
        if plan.scratch:
            trees.append((syscalls.bound_tree(plan.scratch, _INERT, namespace), _SCRATCH))
        if plan.source:
            trees.append((_readable(plan.source, namespace), _SOURCE))
        syscalls.setns(namespace, syscalls.CLONE_NEWUSER)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    syscalls.set_death_signal(signal.SIGKILL)  # a change of credentials clears it
    syscalls.unshare(_NAMESPACES)
    raise_loopback()
    _hand_out(plan)
    syscalls.mount("tmpfs", str(_HELD), "tmpfs", 0, "mode=0755,size=64k")
    for tree, target in trees:
        if is_file and target == _SOURCE:
            target.touch()
        else:
            target.mkdir()
        syscalls.attach_tree(tree, str(target))
        os.close(tree)


def _readable(source: str, namespace: int) -> int:
    """Mount the source with mapped IDs if its file system supports them."""
    try:
        return syscalls.bound_tree(source, _INERT, namespace)
    except OSError:
        return syscalls.bound_tree(source, _INERT)


def _hand_out(plan: Plan) -> None:
    if plan.channel < 0:
        return
    made = [socket.create_server(tuple(each), backlog=64) for each in plan.listeners]
    with socket.socket(fileno=plan.channel) as channel:
        socket.send_fds(channel, [b"+"], [each.fileno() for each in made])
