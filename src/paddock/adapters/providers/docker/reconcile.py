"""What a starting control plane does first: undo what is half done, sweep what is nobody's.

Nothing that was finished is touched: a sandbox whose container has ended is a stopped one.
"""

import logging
from collections.abc import Mapping
from typing import Any

from paddock.adapters.providers.docker import building, records
from paddock.adapters.providers.docker.life import Life
from paddock.adapters.providers.docker.names import NEW
from paddock.adapters.providers.docker.records import Container, ImageRecord
from paddock.adapters.providers.docker.watch import mend_fence
from paddock.adapters.providers.finishing import uncancelled
from paddock.domain.errors import Broken, NotFound, PaddockError
from paddock.domain.sandbox import SandboxState

_log = logging.getLogger(__name__)
_UNFINISHED = ("removing", "dead")


async def reconcile(life: Life) -> None:
    containers = await life.all()
    for container in containers:
        try:
            await _settle(life, container)
        except PaddockError as error:
            # One that resists must not keep the others from being found; the next run tries again.
            _log.error("sandbox not reconciled id=%s error=%s", container.id[:12], error)
    await _sweep_images(life)
    await building.sweep(life.engine, life.names, life.place)
    await _sweep_notes(life)
    await _sweep_files(life)
    if any(life.names.network in container.networks for container in containers):
        await life.network.ensure()  # a host that was restarted has forgotten its rules
    await life.network.remove_unused()
    await _mend_fences(life)
    life.place.forget_dead()


async def _mend_fences(life: Life) -> None:
    try:
        for ref in await life.machines.fencing.known():
            await mend_fence(life, ref)
    except PaddockError as error:
        _log.error("fences not mended error=%s", error)  # the watch tries again


async def _settle(life: Life, container: Container) -> None:
    record = container.record
    half_made = container.name.endswith(NEW)
    if half_made and life.place.is_alive(record.maker, record.created_at):
        return
    if half_made or container.status in _UNFINISHED:
        await uncancelled(life.unmake(container))
        _log.info("half-made container removed name=%s", container.name)
    elif life.lost(container):
        async with life.held(container.id):
            return


async def _sweep_images(life: Life) -> None:
    """Snapshots that never became whole; bases of forks and deleted snapshots without a user."""
    for kind in (records.SNAPSHOT, records.FORK):
        for seen in await life.images.of_kind(kind):
            await _settle_image(life, seen)


async def _settle_image(life: Life, seen: Mapping[str, Any]) -> None:
    try:
        record = records.read(seen.get("Labels"), ImageRecord, f"image {seen['Id']}")
    except Broken as error:
        _log.error("image left alone id=%s error=%s", seen["Id"], error)
        return
    if life.place.is_alive(record.maker, record.created_at):
        return
    for tag in seen.get("RepoTags") or ():
        if tag.endswith(NEW):
            await life.images.untag(tag)
    await life.images.discard(seen["Id"])


async def _sweep_notes(life: Life) -> None:
    """Notes about containers that are gone, or that never stopped or run again."""
    for note in await life.notes.all():
        if not await _is_stopped(life, note.container):
            await life.notes.remove(note.container)


async def _is_stopped(life: Life, container: str) -> bool:
    """The lock is taken, because whoever is just stopping it has noted why already."""
    try:
        async with life.held(container) as found:
            return found.state is SandboxState.STOPPED
    except NotFound:
        return False


async def _sweep_files(life: Life) -> None:
    """Locks of processes and guests' sockets of containers that are gone, and dead tunnels."""
    life.place.locks.sweep()
    containers = {container.id for container in await life.all()}
    known = {life.place.socket(container).name for container in containers}
    for path in (life.place.run / "guests").iterdir():
        owner = path.name.partition("-")[0] if "-" in path.name else ""
        alive = life.place.owner.is_alive(owner) if owner else path.name in known
        if not alive:
            path.unlink(missing_ok=True)
