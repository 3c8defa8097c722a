"""The templates of one data directory: their recipes by name, their builds by content."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local.storage import Storage
from paddock.adapters.providers.local.storage.faults import explain, explained
from paddock.adapters.providers.local.storage.trees import remove_tree, tree_bytes
from paddock.adapters.providers.local.storage.volumes import (
    abandoned_drafts,
    draft_name,
    set_aside,
)
from paddock.adapters.providers.local.templates import archives, sources
from paddock.adapters.providers.local.templates.builds import (
    BuiltTemplate,
    Note,
    is_digest,
    read_build,
    read_note,
    write_note,
)
from paddock.adapters.providers.local.templates.contract import fulfil
from paddock.adapters.providers.local.templates.defaults import Defaults
from paddock.adapters.providers.local.templates.images import Images
from paddock.adapters.providers.local.templates.recipes import Recipes
from paddock.adapters.providers.local.templates.sources import Progress, SnapshotParts, digest_of
from paddock.adapters.providers.local.templates.waiting import turn
from paddock.domain.errors import Broken, Conflict, InvalidRequest, NotFound, Unsupported
from paddock.domain.template import SourceKind, Template, TemplateSource, image_template, is_image

SetupRunner = Callable[[Path, Path | None, Sequence[str]], Awaitable[Path]]
"""Runs commands in a sandbox of (lower, seed); the volume it returns becomes the store's."""

SnapshotLookup = Callable[[str], SnapshotParts]


def _silent(_text: str, _fraction: float | None) -> None:
    pass


Users = Callable[[str], Sequence[str]]
"""Who uses the build of this digest, in words."""


def _unused(_digest: str) -> Sequence[str]:
    return ()


class TemplateStore:
    """Recipes are resolved once and then pinned: a build is found again by its recipe alone, until
    the recipe is added anew, which is how a changed image, directory or archive is picked up.
    """

    def __init__(
        self,
        storage: Storage,
        data_dir: Path,
        *,
        cache: Path | None = None,
        snapshots: SnapshotLookup | None = None,
        images: Images | None = None,
    ) -> None:
        self._storage = storage
        self._shelf = storage.pool / "templates"
        self._directory = data_dir / "templates"
        self._recipes = Recipes(self._directory)
        self._cache = cache
        self._snapshots = snapshots
        self._images = images or Images()
        self._pinned: dict[str, BuiltTemplate] = {}

    def recipe(self, name: str) -> Template:
        """NotFound lists the names there are."""
        return self._recipes.get(name)

    def resolve(self, name: str) -> Template:
        """A template by its name, or one made on the spot of an image's reference."""
        return image_template(name) if is_image(name) else self.recipe(name)

    def recipes(self) -> list[Template]:
        return self._recipes.all()

    def add(self, template: Template) -> None:
        """In the place of one of the same name; its source is looked at anew, unless only what
        snapshots leave out is different."""
        before = None
        with suppress(NotFound, Broken):
            before = self._recipes.get(template.name)
        if before is None or before.source != template.source:
            sources.check_there(template.source)
        with explained(self._directory):
            self._recipes.add(template)
            if before == template or not _alike(before, template):
                self._pin(template).unlink(missing_ok=True)
        self._pinned.clear()

    def remove(self, name: str) -> None:
        """The recipe; its build stays. Absent is success, Conflict for a built-in one."""
        self._recipes.remove(name)

    def builds(self) -> list[BuiltTemplate]:
        found = [read_build(self._shelf, path.name) for path in sorted(self._shelf.iterdir())]
        return [build for build in found if build is not None]

    def built(self, template: Template) -> BuiltTemplate | None:
        """What the recipe leads to, if it is built."""
        recipe = template.digest()
        known = self._pinned.get(recipe)
        if known is None:
            try:
                revision, _, digest = self._pin(template).read_text().partition(" ")
            except FileNotFoundError:
                return None
            if revision != str(sources.REVISION):
                return None
            known = read_build(self._shelf, digest.strip())
        if known is None or not known.lower.is_dir():
            return None
        self._pinned[recipe] = known
        return known

    def get(self, digest: str) -> BuiltTemplate:
        build = read_build(self._shelf, digest)
        if build is None:
            raise NotFound(f"no template is built with the digest {digest}")
        return build

    async def delete(self, digest: str, users: Users = _unused) -> int:
        """The bytes it took. Absent is success; Conflict while another build stands on it.

        `users` says who else does. It is asked once nobody can begin to: a sandbox that came in
        between is found, or finds nothing to stand on.
        """
        if not is_digest(digest):
            raise InvalidRequest(f"{digest!r} is no digest of a template")
        above = [b.digest for b in self.builds() if b.root == digest and b.digest != digest]
        if above:
            raise Conflict(
                f"the template {digest} is the root of {', '.join(above)}",
                remediation="delete those first",
            )
        self._pinned.clear()
        place = self._shelf / digest
        parts = [place / part for part in ("rootfs", "seed")]
        freed = [await asyncio.to_thread(tree_bytes, part) for part in parts if part.is_dir()]
        await uncancelled(asyncio.to_thread(self._remove_unless_used, place, users))
        return sum(freed)

    def _remove_unless_used(self, place: Path, users: Users) -> None:
        if not place.exists():
            return
        aside = set_aside(place)
        if using := users(place.name):
            if aside != place:
                aside.rename(place)
            raise Conflict(
                f"the template build {place.name} is in use by {', '.join(using[:3])}",
                remediation="remove those first",
            )
        self._storage.delete(aside)

    async def ensure(
        self,
        template: Template,
        *,
        progress: Progress = _silent,
        setup_runner: SetupRunner,
        most_mib: int | None = None,
    ) -> BuiltTemplate:
        """The template, built unless it is. On any failure nothing of it remains. TooLarge for an
        image that would have to be fetched and has more than `most_mib`."""
        if (known := self.built(template)) is not None:
            return known
        root = await self._ensure_source(template.source, progress, most_mib)
        build = root
        if template.setup:
            build = await self._ensure_setup(root, template.setup, progress, setup_runner)
        with explained(self._directory):
            self._write_pin(template, build.digest)
        progress("ready", 1.0)
        return build

    async def export(self, digest: str, archive: Path) -> None:
        """Into one .tar.zst that import_from() takes, on this host or another."""
        build = self.get(digest)
        for left in abandoned_drafts(archive.parent):
            left.unlink()
        draft = archive.with_name(draft_name())
        try:
            await archives.pack(self._shelf, sorted({build.root, build.digest}), draft)
            with explained(archive):
                draft.rename(archive)
        finally:
            draft.unlink(missing_ok=True)

    async def import_from(self, archive: Path, *, progress: Progress = _silent) -> BuiltTemplate:
        """What export() wrote. What is built already stays as it is."""
        progress(f"unpacking {archive}", None)
        draft = self._shelf / draft_name()
        try:
            with explained(draft):
                draft.mkdir(mode=0o700)
            await archives.unpack_builds(archive, draft)
            return self.get(await asyncio.to_thread(self._adopt, archive, draft))
        finally:
            await asyncio.shield(asyncio.to_thread(self._storage.delete, draft))

    def _adopt(self, archive: Path, unpacked: Path) -> str:
        """Put each build in its place, what others stand on first; returns the topmost digest."""
        notes = [note for path in unpacked.iterdir() if (note := read_note(path)) is not None]
        notes = [note for note in notes if is_digest(note.digest) and is_digest(note.root)]
        if not notes:
            raise InvalidRequest(f"{archive} holds no template that was exported")
        notes.sort(key=lambda note: note.root != note.digest)
        for note in notes:
            path = unpacked / note.digest
            if read_build(self._shelf, note.digest):
                continue
            with explained(path):
                if (path / "seed").is_dir():  # a plain directory now, and slow to clone
                    (path / "seed").rename(path / "plain")
                    self._storage.clone(path / "plain", path / "seed")
                    self._storage.delete(path / "plain")
                path.rename(self._shelf / note.digest)
        return notes[-1].digest

    def _pin(self, template: Template) -> Path:
        return self._directory / ".pins" / template.digest()

    def _write_pin(self, template: Template, digest: str) -> None:
        pin = self._pin(template)
        pin.parent.mkdir(parents=True, exist_ok=True)
        draft = pin.with_name(f".{os.urandom(4).hex()}")
        draft.write_text(f"{sources.REVISION} {digest}\n")
        draft.rename(pin)

    async def _ensure_source(
        self, source: TemplateSource, progress: Progress, most_mib: int | None
    ) -> BuiltTemplate:
        progress("looking at the source", 0.0)
        digest = await sources.identify(source, self._images)

        async def build(draft: Path) -> Note:
            if source.kind is SourceKind.SNAPSHOT:
                return await self._from_snapshot(source.reference, digest, draft)
            images = self._images.within(most_mib)
            defaults = await sources.fetch(source, draft / "rootfs", progress, images)
            await asyncio.to_thread(fulfil, draft / "rootfs")
            return _note(digest, digest, f"{source.kind} {source.reference}", defaults)

        return await self._ensure(digest, build, progress, cached=source.kind is SourceKind.DEBIAN)

    async def _ensure_setup(
        self, root: BuiltTemplate, commands: Sequence[str], progress: Progress, run: SetupRunner
    ) -> BuiltTemplate:
        digest = digest_of(root.digest, list(commands))

        async def build(draft: Path) -> Note:
            progress("running the set-up commands", None)
            volume = await run(root.lower, root.seed, commands)
            with explained(volume):
                volume.rename(draft / "seed")
            await asyncio.to_thread(_forget_the_guest, draft / "seed")
            defaults = Defaults(root.env, root.user, root.workdir)
            return _note(digest, root.root, f"{root.origin}, set up", defaults, seeded=True)

        return await self._ensure(digest, build, progress)

    async def _ensure(
        self,
        digest: str,
        build: Callable[[Path], Awaitable[Note]],
        progress: Progress,
        *,
        cached: bool = False,
    ) -> BuiltTemplate:
        """The one with that digest, made by this process or, meanwhile, by another."""
        lock = self._directory / ".locks" / digest
        async with turn(lock, lambda: progress("another process builds it", None)):
            if (made := read_build(self._shelf, digest)) is not None:
                return made
            archive = self._cache / f"{digest}.tar.zst" if self._cache and cached else None
            if archive and archive.exists():
                await self.import_from(archive, progress=progress)
            else:
                await self._build(digest, build)
                if archive:
                    progress("keeping a copy in the cache", 0.98)
                    archive.parent.mkdir(parents=True, exist_ok=True)
                    await self.export(digest, archive)
            made = read_build(self._shelf, digest)
        if made is None:
            raise Broken(f"the template {digest} was built but is not there")
        return made

    async def _build(self, digest: str, build: Callable[[Path], Awaitable[Note]]) -> None:
        await asyncio.to_thread(self._storage.sweep)
        stale = self._shelf / digest  # without a readable build in it, as the caller saw
        draft = self._shelf / draft_name()
        try:
            with _explained(digest):
                draft.mkdir(mode=0o755)
                note = await build(draft)
                write_note(draft, note)
                await asyncio.to_thread(self._storage.delete, stale)
                draft.rename(stale)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._storage.delete, draft))
            raise

    async def _from_snapshot(self, reference: str, digest: str, draft: Path) -> Note:
        if self._snapshots is None:
            raise Unsupported("templates of snapshots are not available here")
        parts = self._snapshots(reference)
        root = parts.lower.parent.name
        if parts.lower != self._shelf / root / "rootfs":
            raise Unsupported(
                f"the snapshot {reference} stands on {parts.lower}, which is no template"
            )
        await asyncio.to_thread(self._storage.clone, parts.volume, draft / "seed")
        await asyncio.to_thread(_forget_the_guest, draft / "seed")
        return _note(digest, root, f"snapshot {reference}", parts.defaults, seeded=True)


@contextmanager
def _explained(digest: str) -> Iterator[None]:
    """Like faults.explained(), but without host paths: a member may read the error."""
    try:
        yield
    except OSError as error:
        bare = OSError(error.errno, error.strerror or str(error))
        raise explain(bare, Path(f"template {digest[:12]}")) from error


def _alike(before: Template | None, after: Template) -> bool:
    return before is not None and replace(before, snapshot_ignore=after.snapshot_ignore) == after


def _forget_the_guest(volume: Path) -> None:
    """What the guest of one sandbox wrote is nothing for those that are made of the template."""
    for part in ("guest", "work"):
        for entry in (volume / part).iterdir():
            remove_tree(entry)


def _note(digest: str, root: str, origin: str, defaults: Defaults, *, seeded: bool = False) -> Note:
    return Note(
        digest=digest,
        root=root,
        origin=origin,
        created_at=time.time(),
        seeded=seeded,
        env=defaults.env,
        user=defaults.user,
        workdir=defaults.workdir,
    )
