"""What sandboxes start from, as images of the engine: templates, others' images, snapshots."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.names import Names, template_image
from paddock.adapters.providers.docker.records import Defaults
from paddock.adapters.providers.host.owner import Turns
from paddock.domain.errors import (
    Broken,
    Conflict,
    Forbidden,
    NotFound,
    PaddockError,
    Unavailable,
)
from paddock.domain.image_reference import ENGINE, RegistryImage, is_local
from paddock.domain.template import is_image

_IMPORT_S = 1800.0
_COMMIT_S = 1800.0
_CHUNK = 1 << 20
_HERE = "localhost/"
_LIBPOD = "/v4.0.0/libpod"
_LEFT_OUT = ("./proc/*", "./sys/*", "./dev/*", "./run/*")


@dataclass(frozen=True, slots=True)
class TemplateImage:
    """A template as an engine can have it: files to be imported, or an image it has itself."""

    defaults: Defaults
    digest: str = ""
    files: Callable[[], AbstractAsyncContextManager[Path]] | None = None
    """Opens a directory or a tar file with the root; asked for only when it must be imported."""
    reference: str = ""
    """The engine's own image: the template's source is `docker:NAME`, or the engine built it."""
    whole: bool = False
    """Whether that image has what a sandbox expects, because we have made it."""


ImageSource = Callable[[str], Awaitable[TemplateImage]]
"""By a template's name; NotFound when there is no such template."""


async def no_templates(template: str) -> TemplateImage:
    raise NotFound(
        f"there is no template {template!r}",
        remediation="name an image of the engine as docker:NAME",
    )


@dataclass(frozen=True, slots=True)
class Base:
    """What a container is made of."""

    image: str
    defaults: Defaults
    foreign: bool = False
    """Somebody else's image, which may lack what a sandbox expects."""


@dataclass
class Images:
    """The images of one installation on one engine."""

    engine: Engine
    names: Names
    source: ImageSource = no_templates
    registries: tuple[str, ...] = ()
    """Registries of images that a sandbox may name."""
    _turns: Turns = field(default_factory=Turns)
    _pulled: dict[str, str] = field(default_factory=dict)
    """IDs of images that were pulled without a login, by reference."""

    async def template(self, template: str) -> Base:
        """By a template's name, or the name of an image; imported or pulled when first needed."""
        if template.startswith(ENGINE) and not template.startswith("docker://"):
            return await self._own(template.removeprefix(ENGINE), Defaults(template))
        if is_image(template) and not is_local(template):
            image = await self._public(RegistryImage.parse(template))
            return await self._own(image, Defaults(template))
        found = await self.source(template)
        if found.reference:
            return replace(
                await self._own(found.reference, found.defaults), foreign=not found.whole
            )
        name = self.qualified(template_image(template, found.digest))
        async with self._turns.take(name):
            if (seen := await self._inspect(name)) is None:
                await self._import(name, found)
                seen = await self._inspect(name)
        if seen is None:
            raise Broken(f"the engine imported template {template} and does not have it")
        return Base(seen["Id"], found.defaults)

    def qualified(self, name: str) -> str:
        """Podman takes a name without a registry for one of Docker's own registry."""
        if not self.engine.about.podman or name.startswith(_HERE):
            return name
        return _HERE + name

    async def fetched(self, reference: str) -> Mapping[str, Any]:
        """An image by the engine's own name for it, pulled when the engine lacks it."""
        async with self._turns.take(reference):
            seen = await self._inspect(reference)
            if seen is None:
                await self._pull(reference)
                seen = await self._inspect(reference)
        if seen is None:
            raise Broken(f"the engine pulled image {reference} and does not have it")
        return seen

    async def _public(self, image: RegistryImage) -> str:
        """Return the ID of an image that anyone can pull.

        A local image of the same name is not used: it may have been built here or pulled with a
        password, so a tenant who knows its name need not have access to it.
        """
        if image.registry not in self.registries:
            raise Forbidden(
                f"the engine may not pull {image} from this registry",
                remediation="an operator can add the registry to the setting docker.registries, "
                f"or create a template from docker:{image}",
            )
        name = str(image)
        async with self._turns.take(name):
            known = self._pulled.get(name, "")
            if known and await self._inspect(known) is not None:
                return known
            await self._pull(name)
            seen = await self._inspect(name)
            if seen is None:
                raise Broken(f"the engine pulled the image {name}, but does not list it")
            self._pulled[name] = _with_algorithm(seen["Id"])
            return self._pulled[name]

    async def _own(self, reference: str, defaults: Defaults) -> Base:
        seen = await self.fetched(reference)
        config = seen.get("Config") or {}
        env = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
        return Base(
            seen["Id"],
            replace(
                defaults,
                env={**env, **defaults.env},
                workdir=defaults.workdir or config.get("WorkingDir") or "",
            ),
            foreign=True,
        )

    async def _inspect(self, name: str) -> Mapping[str, Any] | None:
        try:
            seen: Mapping[str, Any] = await self.engine.get(f"images/{name}/json", f"find {name}")
        except NotFound:
            return None
        return seen

    async def _pull(self, reference: str) -> None:
        name, tag = reference, ""
        if "@" not in reference:
            head, colon, rest = reference.rpartition(":")
            name, tag = (head, rest) if colon and "/" not in rest else (reference, "latest")
        query = {"fromImage": name, **({"tag": tag} if tag else {})}
        try:
            await self.engine.pull(query, f"pull image {reference}", _IMPORT_S)
        except NotFound as error:
            raise NotFound(
                f"there is no image {reference}: {error.message}",
                remediation="check its name; for a private one, `docker pull` it first",
            ) from error
        except Broken as error:
            raise Unavailable(
                f"image {reference} is not on the engine and cannot be had: {error.message}",
                remediation="give the engine a way to the registry, or load the image into it",
            ) from error

    async def _import(self, name: str, found: TemplateImage) -> None:
        if found.files is None:
            raise Broken(f"template {found.defaults.template} has neither files nor an image")
        async with found.files() as root:
            await self.engine.send(
                "POST",
                "images/create",
                f"import template {found.defaults.template}",
                data=tar(root) if root.is_dir() else read(root),
                # With its tag in one piece, because Podman overlooks a tag of its own.
                query={
                    "fromSrc": "-",
                    "repo": name,
                    "changes": f"LABEL {records.KIND}={records.TEMPLATE}",
                },
                timeout=_IMPORT_S,
            )

    async def commit(self, container: str, marks: Mapping[str, str], name: str = "") -> str:
        """The id of an image of its disk at one moment; the engine pauses it for that."""
        repository, _, tag = self.qualified(name).rpartition(":") if name else ("", "", "")
        query = [("container", container), ("repo", repository), ("tag", tag), ("pause", "true")]
        if self.engine.about.podman:  # it does not look at the labels in the body
            query += [("changes", line) for line in records.instructions(marks)]
        made = await self.engine.call(
            "POST",
            "commit",
            f"copy the disk of container {container[:12]}",
            body={"Labels": dict(marks)},
            query=query,
            timeout=_COMMIT_S,
        )
        return _with_algorithm(made["Id"])

    async def tag(self, image: str, name: str) -> None:
        repository, _, tag = self.qualified(name).rpartition(":")
        await self.engine.post(f"images/{image}/tag", f"name {name}", repo=repository, tag=tag)

    async def untag(self, name: str) -> None:
        """The name goes, and the image with it unless a sandbox stands on it. Absent is success."""
        name = self.qualified(name)
        with suppress(NotFound):
            if not self.engine.about.podman:
                await self.engine.delete(f"images/{name}", f"remove image {name}", force=1)
                return
            # Podman's force would remove the sandboxes as well.
            seen = await self.engine.get(f"images/{name}/json", f"find {name}")
            repository, _, tag = name.rpartition(":")
            path = f"{_LIBPOD}/images/{name}/untag"
            await self.engine.post(path, f"take the name {name} away", repo=repository, tag=tag)
            await self.discard(seen["Id"])

    async def discard(self, image: str) -> None:
        """Remove an image without a name that nothing stands on any more; others stay."""
        seen = await self._inspect(image)
        if seen is None or seen.get("RepoTags"):
            return
        if ((seen.get("Config") or {}).get("Labels") or {}).get(records.KIND) in (
            records.FORK,
            records.SNAPSHOT,
        ):
            with suppress(NotFound, Conflict):
                await self.engine.delete(f"images/{image}", f"remove image {image}")

    async def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        seen = await self.engine.get(
            "images/json", "list its images", filters=self.names.filter, all=1
        )
        return [one for one in seen if (one.get("Labels") or {}).get(records.KIND) == kind]

    async def find(self, name: str) -> Mapping[str, Any] | None:
        """By name or `sha256:` and id, with everything the engine knows of it."""
        return await self._inspect(name if name.startswith("sha256:") else self.qualified(name))

    async def size_bytes(self, image: str) -> int:
        """Of all its layers together."""
        return int(((await self._inspect(image)) or {}).get("Size") or 0)

    async def added_bytes(self, image: str) -> int | None:
        """What its uppermost layer has on top of the others."""
        try:
            history = await self.engine.get(f"images/{image}/history", f"measure image {image}")
            return int(history[0]["Size"])
        except (PaddockError, LookupError, TypeError, ValueError):
            return None


async def template_images(engine: Engine) -> dict[str, int]:
    """The names of all images of templates on the engine, with their sizes."""
    marks = json.dumps({"label": [f"{records.KIND}={records.TEMPLATE}"]})
    return {
        tag.removeprefix(_HERE): int(seen.get("Size") or 0)
        for seen in await engine.get("images/json", "list its templates", filters=marks)
        for tag in seen.get("RepoTags") or ()
        if tag.removeprefix(_HERE).startswith("paddock/")
    }


async def drop_template(engine: Engine, tag: str) -> None:
    """Absent is success, Conflict while a sandbox stands on it."""
    with suppress(NotFound):
        try:
            await engine.delete(
                f"images/{_HERE if engine.about.podman else ''}{tag}", f"remove image {tag}"
            )
        except Conflict as error:
            raise Conflict(
                f"sandboxes of the docker provider stand on {tag}: {error.message}",
                remediation="remove those that `paddock sandbox ls --provider docker` shows",
            ) from error


def _with_algorithm(image: str) -> str:
    return image if image.startswith("sha256:") else f"sha256:{image}"


async def read(path: Path) -> AsyncIterator[bytes]:
    """A file, piece by piece."""
    with path.open("rb") as file:
        while data := await asyncio.to_thread(file.read, _CHUNK):
            yield data


def quoted(value: str) -> str:
    """As the value of an instruction of a Dockerfile."""
    return json.dumps(value).replace("$", "\\$")


async def tar(root: Path, options: Sequence[str] = ()) -> AsyncIterator[bytes]:
    """The files of a directory, without what an engine has of its own there."""
    process = await asyncio.create_subprocess_exec(
        *("tar", "-C", str(root), "--numeric-owner", "--xattrs", "--xattrs-include=*", *options),
        *(f"--exclude={path}" for path in _LEFT_OUT),
        *("-c", "."),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        while data := await process.stdout.read(_CHUNK):
            yield data
        if await process.wait() != 0:
            raise Broken("some files of the template could not be read")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
