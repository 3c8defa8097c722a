"""Choosing the best storage that the host and the data directory allow."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from paddock.adapters.providers.local.storage.btrfs import BtrfsStorage, check_subvolumes
from paddock.adapters.providers.local.storage.faults import NotHere, explained
from paddock.adapters.providers.local.storage.mounts import mount_of
from paddock.adapters.providers.local.storage.plain import PlainStorage, check_reflink
from paddock.adapters.providers.local.storage.pool import (
    image_of,
    locked,
    mount_pool,
    unmount_pool,
)
from paddock.adapters.providers.local.storage.quotas import Quotas
from paddock.adapters.providers.local.storage.volumes import Storage
from paddock.domain.errors import Conflict, InvalidRequest, Unsupported

DRIVERS = {
    "auto": ("native", "loop", "reflink", "copy"),
    "btrfs": ("native", "loop"),
    "btrfs-loop": ("loop",),
    "reflink": ("reflink",),
    "copy": ("copy",),
}
_LABELS = {"native": "the host's own btrfs", "loop": "a btrfs image", "copy": "plain copies"}

_Opener = Callable[[Path, int | None, list[str]], Storage]


def open_storage(
    data_dir: Path, *, driver: str = "auto", pool_size_mib: int | None = None
) -> Storage:
    """The storage of a data directory, the same for every process that opens it.

    Mounts the pool in the caller's mount namespace if it is not mounted yet, and sweeps. Raises
    Unsupported when the driver asked for cannot work here and Conflict when the volumes of the
    directory belong to another one.
    """
    if driver not in DRIVERS:
        raise InvalidRequest(
            f"there is no storage driver {driver!r}", remediation=f"use one of {', '.join(DRIVERS)}"
        )
    with explained(data_dir):
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    data_dir = data_dir.resolve()
    with explained(data_dir), locked(data_dir):
        storage = _open_first(data_dir, driver, pool_size_mib)
    storage.sweep()
    return storage


def _open_first(data_dir: Path, driver: str, pool_size_mib: int | None) -> Storage:
    ways = DRIVERS[driver]
    if image_of(data_dir).exists():
        if "loop" not in ways:
            raise Conflict(
                f"the volumes of {data_dir} live in {image_of(data_dir)}, which the driver "
                f"{driver!r} does not read",
                remediation="use the driver 'auto' or 'btrfs', or another data directory",
            )
        ways = ("loop",)
    notes: list[str] = []
    for way in ways:
        try:
            return _OPENERS[way](data_dir, pool_size_mib, notes)
        except NotHere as reason:
            notes.append(f"{_LABELS.get(way, way)}: {reason}")
    raise Unsupported(
        f"storage driver {driver!r} does not work in {data_dir}: {'; '.join(notes)}",
        remediation="put that right, or use the driver 'auto'",
    )


def _open_native(data_dir: Path, _: int | None, notes: list[str]) -> Storage:
    kind = mount_of(data_dir).kind
    if kind != "btrfs":
        raise NotHere(f"{data_dir} is on {kind}")
    pool = data_dir / "pool"
    pool.mkdir(exist_ok=True)
    check_subvolumes(pool)
    quotas = Quotas(pool, ours=False)
    if not quotas.enforced:
        notes.append(
            "disk limits are watched, not enforced: quotas are off on this btrfs, and it is not "
            f"Paddock's to change; switch them on with: btrfs quota enable --simple {pool}"
        )
    return BtrfsStorage(pool, quotas, notes)


def _open_loop(data_dir: Path, pool_size_mib: int | None, notes: list[str]) -> Storage:
    notes += mount_pool(data_dir, pool_size_mib)
    pool = data_dir / "pool"
    quotas = Quotas(pool, ours=True)
    if refused := quotas.enable():
        notes.append(f"disk limits are watched, not enforced: {refused}")
    return BtrfsStorage(pool, quotas, notes, partial(unmount_pool, data_dir))


def _open_reflink(data_dir: Path, _: int | None, notes: list[str]) -> Storage:
    check_reflink(data_dir)
    return PlainStorage(data_dir / "pool", "reflink", notes)


def _open_copy(data_dir: Path, _: int | None, notes: list[str]) -> Storage:
    return PlainStorage(data_dir / "pool", "copy", notes)


_OPENERS: dict[str, _Opener] = {
    "native": _open_native,
    "loop": _open_loop,
    "reflink": _open_reflink,
    "copy": _open_copy,
}
