"""Programs that outlive the guest which started them, and how the next one ends them."""

from __future__ import annotations

from .children import Children
from .connect import Message
from .tree import Tree, read_proc, read_small, snapshot

_NO_ROOT = -1


def remember(pid: int) -> Message | None:
    """What to write down of a program, so that it is found again and nothing is taken for it."""
    proc = read_proc(pid)
    return None if proc is None else {"pid": pid, "start": proc.start, "boot": _boot_id()}


def find(remembered: object) -> dict[int, int]:
    """What still lives of a program: itself and its session, as pids with their start times."""
    if not isinstance(remembered, dict) or remembered.get("boot") != _boot_id():
        return {}
    table = snapshot()
    root = table.get(remembered["pid"])
    if root is not None and root.start != remembered["start"]:
        return {}  # the pid is someone else's by now
    return {p.pid: p.start for p in table.values() if remembered["pid"] in (p.pid, p.session)}


async def end(children: Children, found: dict[int, int]) -> None:
    if not found:
        return
    tree = Tree(_NO_ROOT, children, found)
    try:
        await tree.kill()
    finally:
        tree.close()


def _boot_id() -> str:
    return read_small("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
