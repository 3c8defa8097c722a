"""What a starting control plane does first: finish or undo what others left, sweep the rest.

Nothing that was finished is touched: a sandbox whose machine is gone becomes a stopped one, and a
sandbox whose record cannot be read is left exactly as it is, for a person to look at.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host.owner import coming_or_going
from paddock.adapters.providers.local import runtime, tunnels
from paddock.adapters.providers.local.archives import Archives
from paddock.adapters.providers.local.fencing import is_fenced
from paddock.adapters.providers.local.layout import archive_of, image_of
from paddock.adapters.providers.local.life import Life
from paddock.adapters.providers.local.records import SandboxRecord, SnapshotRecord
from paddock.adapters.providers.local.watch import mend_fence
from paddock.domain.errors import PaddockError
from paddock.domain.sandbox import SandboxState

_log = logging.getLogger(__name__)


async def reconcile(life: Life) -> None:
    for error in life.records.damaged():
        _log.error("record not readable: %s", error)
    for record in list(life.records.all()):
        if not record.owner or not life.owner.is_alive(record.owner):
            await _settle(life, record.ref)
    await _sweep_records(life)
    for snapshot in list(life.records.snapshots()):
        await settle_snapshot(life, snapshot)
    await _sweep_machines(life)
    await _sweep_volumes(life)
    await asyncio.to_thread(Archives(life).sweep)
    _sweep_keys(life)
    await _sweep_network(life)
    await _mend_fences(life)
    await asyncio.to_thread(life.storage.sweep)
    life.locks.sweep()
    with coming_or_going(life.layout.run):  # nobody is between making its file and locking it
        life.owner.forget_dead()


async def _settle(life: Life, ref: str) -> None:
    async with life.locks.hold(ref):
        record = life.records.read(ref)
        if record is None or (record.owner and life.owner.is_alive(record.owner)):
            return
        try:
            await _settle_held(life, record)
        except PaddockError as error:
            # One that resists must not keep the others from being found; the next run tries again.
            _log.error("sandbox not reconciled ref=%s error=%s", ref, error)


async def _settle_held(life: Life, record: SandboxRecord) -> None:
    unfinished = record.state in (SandboxState.CREATING, SandboxState.DELETING)
    if unfinished or record.pooled:
        await uncancelled(life.unmake(record))
        return
    record = await life.refresh(record)
    if is_fenced(record):
        life.fences.mine.add(record.ref)
    await Archives(life).settle(record)
    if record.owner:
        life.records.change(record, owner="")  # it died while it packed or unpacked


async def _sweep_records(life: Life) -> None:
    """Records whose file was never written, or was removed by a person."""
    for ref in [ref for ref in life.records.refs() if not life.layout.record(ref).exists()]:
        async with life.locks.hold(ref):  # nobody is between making its place and writing it
            if not life.layout.record(ref).exists():
                life.records.remove(ref)


async def remove_unread(life: Life, ref: str) -> None:
    """Whatever there is of a sandbox whose record cannot be read; the lock is held."""
    await life.machines.sweep(ref)
    await asyncio.to_thread(life.storage.delete, life.volume(ref))
    archive_of(life.layout, ref).unlink(missing_ok=True)
    life.records.remove(ref)
    _sweep_keys(life)
    await _sweep_network(life)


async def settle_snapshot(life: Life, snapshot: SnapshotRecord) -> None:
    if snapshot.ready or life.owner.is_alive(snapshot.owner):
        return
    # Nobody writes it any more, so what is on disk now is final; it may have been finished since.
    written = life.records.read_snapshot(snapshot.id)
    if written is not None and written.ready:
        return
    pool = life.storage.pool
    for place in (pool / "snapshots" / snapshot.id, image_of(pool, snapshot.id)):
        await asyncio.to_thread(life.storage.delete, place)
    life.keys.release("snapshot", snapshot.key, snapshot.id)
    life.records.remove_snapshot(snapshot.id)


async def _sweep_machines(life: Life) -> None:
    """Control groups, bundles, sockets and runtime state without a record."""
    traces: set[str] = set()
    for root in life.machines.hierarchies.roots():
        traces |= _names(root / life.layout.cgroup_root, directories_only=True)
    traces |= _names(life.layout.run / "bundles") | runtime.refs_in(life.layout.runtime_state)
    traces |= {name.removesuffix(".sock") for name in _names(life.layout.run / "guests")}
    traces |= _names(life.layout.run / "ports")
    known = set(life.records.refs())
    for ref in traces & known:
        tunnels.sweep(life.layout.ports(ref))
    for ref in traces - known:
        _log.warning("orphan machine removed ref=%s", ref)
        await life.machines.sweep(ref)


async def _sweep_volumes(life: Life) -> None:
    pool = life.storage.pool
    # What is there is listed before what is known: a record is older than anything of its own, so
    # what another process is making right now is never taken for nobody's.
    volumes = _names(pool / "volumes")
    for name in volumes - set(life.records.refs()):
        if not name.startswith("."):
            await asyncio.to_thread(life.storage.delete, pool / "volumes" / name)
    for shelf in (pool / "snapshots", image_of(pool, "")):
        copies = _names(shelf)
        for name in copies - set(life.records.snapshot_ids()):
            if not name.startswith("."):
                await asyncio.to_thread(life.storage.delete, shelf / name)


def _sweep_keys(life: Life) -> None:
    entries = list(life.keys.entries())
    sandboxes = set(life.records.refs())
    snapshots = set(life.records.snapshot_ids())
    for path, kind, target in entries:
        if target not in (sandboxes if kind == "sandbox" else snapshots):
            path.unlink(missing_ok=True)


async def _mend_fences(life: Life) -> None:
    try:
        attached = await life.fences.gateway.attached()  # looked at first: others are making some
        for ref in attached - {each.ref for each in life.records.all() if is_fenced(each)}:
            await life.fences.shut(ref)
        for ref in await life.fences.missing():
            await mend_fence(life, ref)
    except PaddockError as error:
        _log.error("fences not mended error=%s", error)  # the watch tries again


async def _sweep_network(life: Life) -> None:
    if not Path(f"/sys/class/net/{life.network.bridge}").exists():
        return
    async with life.network.held():
        if all(record.network is None for record in life.records.all()):
            await life.network.remove()


def _names(directory: Path, *, directories_only: bool = False) -> set[str]:
    entries: Iterable[Path] = ()
    with contextlib.suppress(FileNotFoundError):
        entries = list(directory.iterdir())
    return {entry.name for entry in entries if entry.is_dir() or not directories_only}


def forget_empty_groups(life: Life) -> None:
    """Remove the control groups above the sandboxes' when there are none."""
    for root in life.machines.hierarchies.roots():
        for directory in (root / life.layout.cgroup_root, root / "paddock"):
            with contextlib.suppress(OSError):
                directory.rmdir()
