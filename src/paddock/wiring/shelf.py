"""Root's templates: recipes and builds of the local store, and their images on an engine."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence, Set
from contextlib import AsyncExitStack
from pathlib import Path

from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.images import drop_template, template_images
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.records import Records
from paddock.adapters.providers.local.storage.trees import tree_bytes
from paddock.adapters.providers.local.templates import TemplateStore, removal
from paddock.adapters.providers.local.templates.builds import is_digest
from paddock.adapters.providers.local.templates.recipes import BUILT_IN
from paddock.adapters.providers.local.templates.removal import Inventory
from paddock.domain.errors import Conflict, Unavailable
from paddock.domain.template import Removed, SourceKind, Template, image_template


class Shelf:
    """What is removed goes from the disk and from the engine, or stays in both."""

    def __init__(self, store: TemplateStore, local: LocalConfig, docker: DockerConfig) -> None:
        self._store = store
        self._docker = docker
        self._records = Records(Layout.of(local.data_dir, local.run_root))
        self._sizes: dict[str, int] = {}
        """Sizes of images by digest: measuring one takes a while."""
        self.recipe = store.recipe
        self.recipes = store.recipes
        self.add = store.add

    async def discard(self, name: str) -> Sequence[Removed]:
        """A recipe with the build it leads to, or one build by its digest. NotFound, and Conflict
        while something stands on it, before anything is removed."""
        inventory = await asyncio.to_thread(self._look)
        if is_digest(name) and name in inventory.roots:
            return await self._remove(removal.of_digest(inventory, name))
        template = self._recipe(name)
        name = template.name
        doomed = removal.of_recipe(inventory, name)
        removed = await self._remove(doomed)
        if not doomed or template != BUILT_IN.get(name):
            await asyncio.to_thread(self._store.remove, name)
        return removed

    async def prune(self, *, everything: bool) -> Sequence[Removed]:
        """The builds that nobody needs. A sandbox of a template that is pruned builds it again."""
        inventory = await asyncio.to_thread(self._look)
        return await self._remove(removal.unneeded(inventory, everything=everything))

    async def image_bytes(self, reference: str) -> int | None:
        """The size of an image that a sandbox named; None if it is not built."""
        build = await asyncio.to_thread(self._store.built, image_template(reference))
        if build is None:
            return None
        if build.digest not in self._sizes:
            self._sizes[build.digest] = await asyncio.to_thread(tree_bytes, build.lower)
        return self._sizes[build.digest]

    async def prune_images(self, needed: Set[str], before: float) -> Sequence[Removed]:
        """Remove builds of images, built before this time, that nothing uses. `needed` are
        references of images that stay."""
        inventory = await asyncio.to_thread(self._look)
        # Several references may lead to one build.
        led_to = [self._store.built(image_template(each)) for each in needed]
        kept = {build.digest for build in led_to if build is not None}
        removable = {
            build.digest
            for build in await asyncio.to_thread(self._store.builds)
            if build.origin.startswith(f"{SourceKind.IMAGE} ")
            and build.digest not in kept
            and build.created_at < before
        }
        unneeded = removal.unneeded(inventory, everything=False)
        return await self._remove([each for each in unneeded if each in removable])

    def _recipe(self, name: str) -> Template:
        """By its name, or by the digest that `template list` shows."""
        by_digest = (each for each in self._store.recipes() if each.digest() == name)
        return next(by_digest, None) or self._store.recipe(name)

    def _look(self) -> Inventory:
        named = {each.name: self._store.built(each) for each in self._store.recipes()}
        return Inventory(
            roots={build.digest: build.root for build in self._store.builds()},
            named={name: build.digest if build else "" for name, build in named.items()},
            users=self._users(),
        )

    def _users_of(self, digest: str) -> Sequence[str]:
        return self._users().get(digest, ())

    def _users(self) -> dict[str, list[str]]:
        if damaged := list(self._records.damaged()):
            raise Conflict(
                f"what stands on which template is not known: {damaged[0]}",
                remediation="repair or remove that record first",
            )
        found: defaultdict[str, list[str]] = defaultdict(list)
        for record in self._records.all():
            what = f"sandbox {record.ref}" + (" (kept ready)" if record.pooled else "")
            for digest in {record.digest, Path(record.lower).parent.name}:
                found[digest].append(what)
        for snapshot in self._records.snapshots():
            for digest in {snapshot.digest, Path(snapshot.lower).parent.name}:
                found[digest].append(f"snapshot {snapshot.id}")
        return dict(found)

    async def _remove(self, doomed: Sequence[str]) -> list[Removed]:
        if doomed:
            await self._drop_images(doomed)
        return [Removed(each, await self._store.delete(each, self._users_of)) for each in doomed]

    async def _drop_images(self, digests: Sequence[str]) -> None:
        """Where there is no engine there are no images of them."""
        async with AsyncExitStack() as stack:
            try:
                address = EngineAddress.find(self._docker.host)
                engine = await stack.enter_async_context(Engine(address))
            except Unavailable:
                return
            for name in await template_images(engine):
                if name.rpartition(":")[2] in digests:
                    await drop_template(engine, name)
