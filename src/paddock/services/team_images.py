"""Images that members name: counted against the team's disk quota, and removed when unused."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from paddock.domain.errors import QuotaExceeded, TooLarge
from paddock.domain.quota import MIB, QuotaName, Usage
from paddock.domain.records import SandboxRecord
from paddock.domain.template import image_name, is_image
from paddock.ports.clock import Clock
from paddock.ports.provider import Observation, Provider, SandboxSpec
from paddock.ports.store import Page, SandboxFilter, Store, Transaction
from paddock.ports.team_images import TeamImage
from paddock.services.provider_templates import Kept
from paddock.services.providers import Providers
from paddock.services.quotas import check_quota

_log = logging.getLogger(__name__)
_KEPT_S = 7 * 86400.0
"""How long an image is kept, and counts, after its last use."""
_NEW_S = 86400.0
"""An image that was fetched so recently may be in use by a sandbox that is being created."""
_AT_ONCE = 500


Prepare = Callable[[int | None], Awaitable[None]]
"""Build the template or fetch the image, which may have this many MiB."""


class TeamImages:
    """The images of all teams."""

    def __init__(self, store: Store, clock: Clock, providers: Providers) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers

    async def create(
        self, provider: Provider, record: SandboxRecord, spec: SandboxSpec, prepare: Prepare
    ) -> Observation:
        """Create a sandbox. If it names an image, the image has to fit into the team's quota."""
        if not is_image(spec.template):
            await prepare(None)
            return await provider.create(record.id, spec)
        room = await self._admit(record, spec.template)
        try:
            await prepare(room)
            seen = await provider.create(record.id, replace(spec, image_mib=room))
        except BaseException as error:
            # It may be on the disk although no sandbox was created.
            await asyncio.shield(self._count(record, spec.template, is_checked=False))
            if room is None or not isinstance(error, TooLarge):
                raise
            raise QuotaExceeded(
                f"{error.message}; the team's quota disk_mib has {room} MiB left",
                remediation="delete what you do not need, or ask an operator to raise the limit "
                "with `paddock team quota set`",
            ) from error
        try:
            await self._count(record, spec.template)
        except BaseException:
            await asyncio.shield(self._count(record, spec.template, is_checked=False))
            await asyncio.shield(provider.destroy(seen.ref))
            raise
        return seen

    async def _admit(self, record: SandboxRecord, reference: str) -> int | None:
        """Raise QuotaExceeded if the image does not fit. If it is not fetched yet, return how many
        MiB it may have."""
        if await self._count(record, reference):
            return None

        def room(tx: Transaction) -> int | None:
            most = tx.quotas.in_force(record.team_id).get(QuotaName.DISK_MIB)
            if most is None:
                return None
            earlier = tx.team_images.get(record.team_id, record.provider, reference)
            counted = earlier.size_bytes / MIB if earlier else 0.0
            used = tx.quotas.usage(record.team_id).disk_mib - counted
            if used + 1 > most:
                check_quota(tx, record.team_id, Usage(disk_mib=1.0))
            return max(1, int(most - used))

        return await self._store.read(room)

    async def _count(
        self, record: SandboxRecord, reference: str, *, is_checked: bool = True
    ) -> bool:
        """Count the image as used by the team. Return whether its size is known. QuotaExceeded if
        it does not fit, unless it counts without a check."""
        kept = self._providers.templates.get(record.provider)
        size = await kept.recipes.image_bytes(reference) if isinstance(kept, Kept) else None
        if size is None:
            return False
        place = (record.team_id, record.provider, reference)
        image = TeamImage(*place, size, self._clock.wall())

        def write(tx: Transaction) -> None:
            earlier = tx.team_images.get(*place)
            more = size - (earlier.size_bytes if earlier else 0)
            if more > 0 and is_checked:
                check_quota(tx, record.team_id, Usage(disk_mib=more / MIB))
            tx.team_images.put(image)

        await self._store.write(write)
        return True

    async def look(self) -> None:
        """Forget images that a team has not used for a week, then remove those that none needs."""
        since = self._clock.wall() - _KEPT_S
        for image in await self._store.read(lambda tx: tx.team_images.all()):
            if image.used_at < since:
                await self._forget_unused(image)
        needed: defaultdict[str, set[str]] = defaultdict(set)
        for image in await self._store.read(lambda tx: tx.team_images.all()):
            needed[image.provider].add(image.reference)
        for name, kept in self._providers.templates.items():
            if isinstance(kept, Kept):
                before = self._clock.wall() - _NEW_S
                removed = await kept.recipes.prune_images(needed[name], before)
                for each in removed:
                    details = {"digest": each.digest, "bytes": each.freed_bytes}
                    _log.info("unused image removed", extra=details)

    async def _forget_unused(self, image: TeamImage) -> None:
        def write(tx: Transaction) -> None:
            if _is_used(tx, image):
                tx.team_images.put(replace(image, used_at=self._clock.wall()))
            else:
                tx.team_images.remove(image)

        await self._store.write(write)


def _is_used(tx: Transaction, image: TeamImage) -> bool:
    """Whether a sandbox or snapshot of the team stands on it."""
    templates = (image.reference, image_name(image.reference))
    page: Page | None = Page(_AT_ONCE)
    where = SandboxFilter(provider=image.provider)
    while page is not None:
        found = tx.sandboxes.list(image.team_id, where, page)
        if any(each.template in templates for each in found):
            return True
        page = Page(_AT_ONCE, found[-1].id) if len(found) == _AT_ONCE else None
    page = Page(_AT_ONCE)
    while page is not None:
        taken = tx.snapshots.list(image.team_id, "", page)
        if any(each.template in templates for each in taken):
            return True
        page = Page(_AT_ONCE, taken[-1].id) if len(taken) == _AT_ONCE else None
    return False
