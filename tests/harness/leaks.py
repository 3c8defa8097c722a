"""Finds what test runs leave behind: mounts, devices, networks, processes, files."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_OURS = ("paddock", "pdk-", "/pd-")
_TEMPORARY = ("/tmp/pd-*", "/tmp/paddock-*", "/var/tmp/pdk-*", "/var/tmp/paddock-*")
_KEPT = "/run/paddock-tests"
_SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/forwarding",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv6/conf/all/forwarding",
    "net/bridge/bridge-nf-call-iptables",
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
    "kernel/keys/maxkeys",
    "vm/overcommit_memory",
)
_SETTLE_S = 15.0

State = dict[str, frozenset[str]]


def look() -> State:
    """Return everything of Paddock on this machine, by kind."""
    return {
        "mount": frozenset(_mounts()),
        "loop device": frozenset(_loop_devices()),
        "nftables table": frozenset(_tables_with_rules()),
        "network device": frozenset(entry.name for entry in Path("/sys/class/net").iterdir()),
        "network namespace": frozenset(_names(Path("/run/netns"))),
        "kernel setting": frozenset(_settings()),
        "control group": frozenset(_control_groups()),
        "process": frozenset(_processes()),
        "directory": frozenset(_directories()),
    }


def left_behind(before: State) -> list[str]:
    """Return what was added since then. Processes have some seconds to end."""
    until = time.monotonic() + _SETTLE_S
    while True:
        now = look()
        left = [
            f"{kind}: {name}"
            for kind, names in now.items()
            for name in sorted(names - before[kind])
        ]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.5)


def restore_settings(before: State) -> None:
    """Put kernel settings back. Sandboxes with an open network switch forwarding on."""
    for line in before.get("kernel setting", frozenset()) - frozenset(_settings()):
        name, _, value = line.partition("=")
        with contextlib.suppress(OSError):
            (Path("/proc/sys") / name).write_text(value)


def _is_ours(text: str) -> bool:
    return any(sign in text for sign in _OURS) and _KEPT not in text


def _mounts() -> Iterable[str]:
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return filter(_is_ours, points)


def _loop_devices() -> Iterable[str]:
    lines = _lines("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE")
    return (line for line in lines if _is_ours(line) and "paddock-tests" not in line)


def _tables_with_rules() -> Iterable[str]:
    """Empty tables and chains do nothing; the iptables command leaves some wherever it looks."""
    table = ""
    for line in _lines("nft", "list", "ruleset"):
        if line.startswith("table "):
            table = line.removesuffix(" {")
        elif line.startswith("\t\t") and not line.strip().startswith("type "):
            yield table


def _lines(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines()


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:  # it does not exist, or was just removed
        return []


def _settings() -> Iterable[str]:
    for name in _SYSCTLS:
        path = Path("/proc/sys") / name
        if path.exists():
            yield f"{name}={path.read_text().strip()}"


def _control_groups() -> Iterable[str]:
    roots = Path("/sys/fs/cgroup")
    for root in (roots / "paddock", *(each / "paddock" for each in roots.iterdir())):
        yield from (f"{root}/{name}" for name in _names(root) if (root / name).is_dir())


def _processes() -> Iterable[str]:
    mine = {os.getpid(), os.getppid()}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in mine:
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "paddock" in words and "pytest" not in words and "tests.harness" not in words:
            yield f"{entry.name} {words.strip()[:120]}"


def _directories() -> Iterable[str]:
    for pattern in _TEMPORARY:
        found = map(str, Path("/").glob(pattern[1:]))
        # Without root, Paddock's run directory is /tmp/paddock-UID. It stays.
        yield from (path for path in found if not re.fullmatch(r"/tmp/paddock-\d+", path))
