"""Which volumes a new sandbox mounts, decided in the transaction that writes it down."""

from collections.abc import Sequence
from dataclasses import replace

from paddock.domain.errors import InvalidRequest
from paddock.domain.records import SandboxRecord
from paddock.domain.volume import (
    MountWish,
    VolumeMount,
    VolumeRecord,
    VolumeState,
    check_mount_paths,
    usable,
)
from paddock.ports.store import Page, SandboxFilter, Transaction

_PAGE = 500


def mounted(tx: Transaction, record: SandboxRecord, wishes: Sequence[MountWish]) -> SandboxRecord:
    """The sandbox with what it mounts: what was asked for or, for a fork of which nothing was said,
    what its source has and is still there."""
    if not wishes:
        return replace(record, volumes=_still_there(tx, record)) if record.volumes else record
    check_mount_paths([wish.path for wish in wishes])
    found = [(wish, _found(tx, record, wish)) for wish in wishes]
    mounts = tuple(
        VolumeMount(volume.id, wish.path, volume.name, wish.read_only) for wish, volume in found
    )
    return replace(record, volumes=mounts)


def _found(tx: Transaction, record: SandboxRecord, wish: MountWish) -> VolumeRecord:
    volume = usable(tx.volumes.get(record.team_id, wish.volume), wish.volume)
    if volume.provider == record.provider:
        return volume
    raise InvalidRequest(
        f"volume {volume.name} is on provider {volume.provider}, and sandbox {record.name} would "
        f"be on {record.provider}",
        remediation=f"make the sandbox on {volume.provider}, or another volume",
    )


def _still_there(tx: Transaction, record: SandboxRecord) -> tuple[VolumeMount, ...]:
    found = [(each, tx.volumes.get(record.team_id, each.volume)) for each in record.volumes]
    return tuple(each for each, volume in found if volume and volume.state is VolumeState.READY)


def users_of(tx: Transaction, volume: VolumeRecord) -> list[SandboxRecord]:
    """The sandboxes that mount it, also those that sleep: they would start without it."""
    users: list[SandboxRecord] = []
    after = ""
    while page := tx.sandboxes.list(volume.team_id, SandboxFilter(), Page(_PAGE, after)):
        users += [each for each in page if any(m.volume == volume.id for m in each.volumes)]
        after = page[-1].id
    return users
