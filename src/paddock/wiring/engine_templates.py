"""Templates of a user who is not root: recipes in a directory of their own, images on an engine.

What a root would unpack into its own store, an engine takes as a stream; what a root would run in a
sandbox, runs in a container. Names and digests are the same, so an image that root has imported is
found, and so is an archive that root has made.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.docker import building, records
from paddock.adapters.providers.docker import images as engine_images
from paddock.adapters.providers.docker.building import Builder, Ended
from paddock.adapters.providers.docker.images import TemplateImage
from paddock.adapters.providers.docker.names import template_image
from paddock.adapters.providers.docker.records import Defaults, ImageRecord
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.trees import remove_tree
from paddock.adapters.providers.local.storage.volumes import abandoned_drafts, draft_name
from paddock.adapters.providers.local.templates import bootstrap, debian, sources, streams
from paddock.adapters.providers.local.templates.builds import Note
from paddock.adapters.providers.local.templates.images import Images
from paddock.adapters.providers.local.templates.recipes import BUILT_IN, Recipes
from paddock.adapters.providers.local.templates.waiting import turn
from paddock.domain.errors import Broken, Conflict, Unavailable
from paddock.domain.template import Removed, SourceKind, Template, TemplateSource
from paddock.interfaces.cli.toolbox import Progress


@dataclass(frozen=True, slots=True)
class _Root:
    """An image that a template's source has become."""

    digest: str
    image: str
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    whole: bool = False


def own_directory(config: LocalConfig, environ: Mapping[str, str] = os.environ) -> Path:
    """What the operator says; where nothing is said, the user's and not the system's."""
    if config.data_dir != LocalConfig().data_dir:
        return config.data_dir.absolute()
    base = environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "paddock"


class EngineTemplates:
    """The recipes of one user, and how an engine comes to have them."""

    def __init__(self, builder: Builder, config: LocalConfig, progress: Progress) -> None:
        self._builder = builder
        self._directory = own_directory(config) / "templates"
        self._archives = [self._directory / "archives"]
        if config.template_cache is not None:
            self._archives.append(config.template_cache)
        self._recipes = Recipes(self._directory)
        self._images = Images.of(config, EgressConfig())
        self._progress = progress

    def recipe(self, name: str) -> Template:
        """NotFound lists the names there are."""
        return self._recipes.get(name)

    def recipes(self) -> list[Template]:
        return self._recipes.all()

    def add(self, template: Template) -> None:
        """In the place of one of the same name."""
        if template.source not in [each.source for each in self.recipes()]:
            sources.check_there(template.source)
        self._make_directory()
        with explained(self._directory):
            self._recipes.add(template)

    async def discard(self, name: str) -> Sequence[Removed]:
        """A recipe with its images and its archive. Conflict while a sandbox stands on one."""
        by_digest = (each for each in self.recipes() if each.digest() == name)
        template = next(by_digest, None) or self._recipes.get(name)
        repository = template_image(template.name, "")
        removed = await self._drop([repository])
        removed += await self._drop_archives({await self._debian(template)})
        if not removed or template != BUILT_IN.get(template.name):
            self._recipes.remove(template.name)
        return removed

    async def image_bytes(self, reference: str) -> int | None:
        """None: the engine has the images that sandboxes name."""
        return None

    async def prune_images(self, needed: Set[str], before: float) -> Sequence[Removed]:
        """Nothing: the engine's images are not only ours."""
        return ()

    async def prune(self, *, everything: bool) -> Sequence[Removed]:
        """Archives that no recipe leads to. Everything: also the others, and all images of this
        user's recipes that no sandbox stands on."""
        recipes = self.recipes()
        needed = set() if everything else {await self._debian(each) for each in recipes}
        archives = {path.name.partition(".")[0] for path in self._archives[0].glob("*.tar.zst")}
        removed = await self._drop_archives(archives - needed)
        for each in recipes if everything else ():
            with suppress(Conflict):
                removed += await self._drop([template_image(each.name, "")])
        return removed

    async def _drop(self, repositories: Sequence[str]) -> list[Removed]:
        removed = []
        engine = self._builder.engine
        for name, size in (await engine_images.template_images(engine)).items():
            if name.startswith(tuple(repositories)):
                await engine_images.drop_template(engine, name)
                removed.append(Removed(name.rpartition(":")[2], size))
        return removed

    async def _drop_archives(self, digests: Set[str]) -> list[Removed]:
        removed = []
        for archive in (self._archives[0] / f"{digest}.tar.zst" for digest in sorted(digests)):
            with explained(archive):
                if archive.exists():
                    removed.append(Removed(archive.name.partition(".")[0], archive.stat().st_size))
                    archive.unlink()
        return removed

    async def _debian(self, template: Template) -> str:
        """The digest of the archive that it has, or would have."""
        debian_kind = template.source.kind is SourceKind.DEBIAN
        return await sources.identify(template.source, self._images) if debian_kind else ""

    async def find(self, name: str) -> TemplateImage:
        """The template as an image of the engine, built or fetched unless it is there."""
        template = self._recipes.get(name)
        self._make_directory()
        root = await self._root(template)
        if template.setup:
            root = await self._set_up(template, root)
        self._progress("ready", 1.0)
        defaults = Defaults(
            name,
            {**root.env, **dict(template.env)},
            template.user,
            template.workdir or root.workdir,
        )
        return TemplateImage(defaults, root.digest, reference=root.image, whole=root.whole)

    async def is_built(self, name: str) -> bool:
        """Whether the engine has its image."""
        template = self._recipes.get(name)
        source = template.source
        if source.kind is SourceKind.IMAGE and _is_engines(source.reference):
            image = source.reference.removeprefix("docker:")
            return not template.setup and await self._builder.images.find(image) is not None
        digest = await sources.identify(source, self._images)
        if template.setup:
            digest = sources.digest_of(digest, list(template.setup))
        image = template_image(template.name, digest)
        return await self._builder.images.find(image) is not None

    async def _root(self, template: Template) -> _Root:
        source = template.source
        self._progress("looking at the source", 0.0)
        if source.kind is SourceKind.IMAGE and _is_engines(source.reference):
            return await self._pulled(source.reference.removeprefix("docker:"))
        digest = await sources.identify(source, self._images)
        name = template_image(template.name, digest)
        async with self._turn(digest):
            if await self._builder.images.find(name) is None:
                await self._bring(source, digest, name)
        root = await self._described(name, digest)
        if source.kind is SourceKind.DEBIAN:
            return replace(root, env=dict(debian.DEFAULTS.env), whole=True)
        return root

    async def _bring(self, source: TemplateSource, digest: str, name: str) -> None:
        """Have the engine take in what the source holds, under that name."""
        builder = self._builder
        match source.kind:
            case SourceKind.DEBIAN:
                archive = await self._archive(source, digest)
                self._progress("handing it to the engine", 0.96)
                await builder.import_root(streams.root_of(archive, digest), name)
            case SourceKind.TAR:
                self._progress("handing the archive to the engine", None)
                await builder.import_root(streams.plain(Path(source.reference)), name)
            case SourceKind.DIRECTORY:
                self._progress("handing the directory to the engine", None)
                await builder.import_root(building.tar_of(Path(source.reference)), name)
            case SourceKind.IMAGE:
                await self._load(source.reference, name)
            case SourceKind.SNAPSHOT:
                await builder.images.tag(f"sha256:{source.reference}", name)

    async def _load(self, reference: str, name: str) -> None:
        async with self._scratch() as scratch:
            archive = scratch / "image.tar"
            self._progress(f"fetching {reference}", 0.0)
            await self._images.save(reference, archive)
            self._progress("handing the image to the engine", 0.6)
            image = await self._builder.load(engine_images.read(archive))
        await self._builder.images.tag(image, name)

    async def _pulled(self, reference: str) -> _Root:
        self._progress(f"fetching {reference}", None)
        seen = await self._builder.images.fetched(reference)
        return await self._described(reference, sources.digest_of(sources.REVISION, seen["Id"]))

    async def _described(self, name: str, digest: str) -> _Root:
        seen = await self._builder.images.find(name)
        if seen is None:
            raise Broken(f"the engine took in {name} and does not have it")
        config = seen.get("Config") or {}
        env = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
        workdir = config.get("WorkingDir") or ""
        marks = config.get("Labels") or {}
        if marks.get(records.KIND) == records.SNAPSHOT:
            kept = records.read(marks, ImageRecord, name).defaults
            env, workdir = dict(kept.env), kept.workdir
        return _Root(digest, name, env, workdir)

    async def _set_up(self, template: Template, root: _Root) -> _Root:
        digest = sources.digest_of(root.digest, list(template.setup))
        name = template_image(template.name, digest)
        async with self._turn(digest):
            if await self._builder.images.find(name) is None:
                self._progress("running the set-up commands", None)
                await building.set_up(
                    self._builder, root.image, template.setup, name=name, progress=self._progress
                )
        return replace(root, digest=digest, image=name)

    async def _archive(self, source: TemplateSource, digest: str) -> Path:
        """The archive of a Debian: there already, or made now and kept."""
        for directory in self._archives:
            if (found := directory / f"{digest}.tar.zst").exists():
                return found
        archive = self._archives[0] / f"{digest}.tar.zst"
        async with self._scratch() as scratch:
            draft = scratch / archive.name
            await self._build(source, digest, draft)
            with explained(archive):
                archive.parent.mkdir(parents=True, exist_ok=True)
                draft.rename(archive)
        return archive

    async def _build(self, source: TemplateSource, digest: str, archive: Path) -> None:
        reporter = debian.Reporter(self._progress)
        root = archive.parent / "root"
        await bootstrap.begin(source.reference, source.packages, root, reporter)
        image = await self._builder.import_root(building.tar_of(root, as_root=True))
        try:
            await asyncio.to_thread(remove_tree, root)
            async with self._builder.ran(image, bootstrap.SCRIPT, reporter) as container:
                self._progress("keeping a copy", 0.92)
                note = Note(
                    digest=digest,
                    root=digest,
                    origin=f"{source.kind} {source.reference}",
                    created_at=archive.parent.stat().st_mtime,
                    env=debian.DEFAULTS.env,
                )
                files = self._builder.export(container)
                await streams.keep(files, note, debian.CUSTOM, archive)
        except Ended as ended:
            raise Broken(
                f"the packages of Debian {source.reference} could not be installed: {ended}",
                remediation="its last lines:\n    " + "\n    ".join(ended.tail),
            ) from ended
        finally:
            await self._builder.discard(image)

    def _turn(self, digest: str) -> AbstractAsyncContextManager[None]:
        lock = self._directory / ".locks" / digest
        return turn(lock, lambda: self._progress("another process builds it", None))

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"templates are kept in {self._directory}, which this user cannot make: {error}",
                remediation="set local.data_dir (PADDOCK_LOCAL__DATA_DIR) or XDG_DATA_HOME to a "
                "directory of yours",
            ) from error

    @asynccontextmanager
    async def _scratch(self) -> AsyncIterator[Path]:
        """A directory of this process; what those that were killed have left goes."""
        with explained(self._directory):
            for left in abandoned_drafts(self._directory):
                await asyncio.to_thread(remove_tree, left)
            scratch = self._directory / draft_name()
            scratch.mkdir(mode=0o700)
        try:
            yield scratch
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, scratch))


def _is_engines(reference: str) -> bool:
    """Whether the engine fetches it by itself: its own, or a registry's."""
    return not reference.startswith(("oci:", "oci-archive:", "docker-archive:"))
