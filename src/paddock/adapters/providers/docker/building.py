"""Images made by the engine's own means, for whoever may use the engine and is not root.

Commands run in a container that is thrown away afterwards. Container and images in between say who
is at work on them, so that what a killed process leaves is found and swept.
"""

import codecs
import re
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from paddock.adapters.providers.docker import images, records
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.container import CAPABILITIES
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.images import Images
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.network import OpenNetwork
from paddock.adapters.providers.docker.place import Place
from paddock.adapters.providers.docker.records import BuildRecord
from paddock.adapters.providers.finishing import uncancelled
from paddock.domain.errors import Broken, Conflict, NotFound, Refused

_LONG_S = 1800.0
_LAST_LINES = 20
_LONGEST_LINE = 4096
_MEMORY, _PIDS, _CPUS = 4 << 30, 4096, 2_000_000_000
_FRAME = struct.Struct(">BxxxI")
_LOADED = re.compile(rb"sha256:[0-9a-f]{64}")
_CLOSED = "none"
# What installing packages needs beyond what a guest needs.
_CAPABILITIES = (*CAPABILITIES, "FSETID", "SETFCAP")

Hear = Callable[[str], None]


class Ended(Exception):
    """A command in a container ended with another status than 0; callers say what that means."""

    def __init__(self, status: int, tail: Sequence[str]) -> None:
        super().__init__(f"ended with {status}")
        self.status = status
        self.tail = list(tail)


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes images on one engine, in the name of one installation."""

    engine: Engine
    names: Names
    place: Place
    images: Images
    network: OpenNetwork

    @classmethod
    @asynccontextmanager
    async def opened(cls, config: DockerConfig) -> AsyncIterator["Builder"]:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(Engine(EngineAddress.find(config.host)))
            names = Names(config.installation)
            place = Place.open(config, names)
            stack.callback(place.close)
            network = OpenNetwork(engine, names, config.open_subnet)
            yield cls(engine, names, place, Images(engine, names), network)

    async def import_root(
        self, tar: AsyncIterator[bytes], name: str = "", env: Mapping[str, str] | None = None
    ) -> str:
        """The image's id. One without a name is part of a build, and marked so."""
        kind = [("changes", f"LABEL {records.KIND}={records.TEMPLATE}")]
        if not name:
            kind = [("changes", line) for line in records.instructions(self._marks())]
        query = [
            *(("fromSrc", "-"), ("repo", self.images.qualified(name) if name else "")),
            *kind,
            *(
                ("changes", f"ENV {key}={images.quoted(value)}")
                for key, value in (env or {}).items()
            ),
        ]
        what = f"import {name or 'what a template is built of'}"
        said = await self.engine.send(
            "POST", "images/create", what, data=tar, query=query, timeout=_LONG_S
        )
        return _last_id(said, what)

    async def load(self, archive: AsyncIterator[bytes]) -> str:
        """The id of the one image in an archive of `docker save`."""
        what = "load an image"
        said = await self.engine.send("POST", "images/load", what, data=archive, timeout=_LONG_S)
        return _last_id(said, what)

    @asynccontextmanager
    async def ran(
        self, image: str, argv: Sequence[str], hear: Hear, *, online: bool = False
    ) -> AsyncIterator[str]:
        """A container in which the command has ended well; it goes afterwards. Raises Ended."""
        async with AsyncExitStack() as stack:
            if online:
                stack.push_async_callback(self.network.remove_unused)
                await stack.enter_async_context(self.network.expected())
            order = self._order(image, argv, self.names.network if online else _CLOSED)
            made = await uncancelled(
                self.engine.post("containers/create", "make a container to build in", order)
            )
            container = str(made["Id"])
            stack.push_async_callback(lambda: uncancelled(self._remove(container)))
            tail: deque[str] = deque(maxlen=_LAST_LINES)
            await self.engine.post(f"containers/{container}/start", "start to build")
            async for line in self._lines(container):
                tail.append(line)
                hear(line)
            ended = await self.engine.post(
                f"containers/{container}/wait", "say how a build ended", wait=_LONG_S
            )
            if ended["StatusCode"]:
                raise Ended(ended["StatusCode"], tail)
            yield container

    def export(self, container: str) -> AsyncIterator[bytes]:
        path = f"containers/{container}/export"
        return self.engine.stream(path, f"read container {container[:12]}", timeout=_LONG_S)

    async def commit(self, container: str, name: str) -> None:
        """The container's disk as an image of its own."""
        await self.images.commit(container, {records.KIND: records.TEMPLATE}, name)

    async def discard(self, image: str) -> None:
        """Absent is success, and one that something stands on stays."""
        with suppress(NotFound, Conflict):
            await self.engine.delete(f"images/{image}", f"remove image {image}")

    def _marks(self) -> dict[str, str]:
        record = BuildRecord(time.time(), self.place.maker)
        return records.labels(self.names.installation, records.BUILD, record)

    def _order(self, image: str, argv: Sequence[str], network: str) -> dict[str, Any]:
        return {
            "Image": image,
            "Labels": self._marks(),
            "User": "0:0",
            "WorkingDir": "/",
            "Entrypoint": list(argv[:1]),
            "Cmd": list(argv[1:]),
            "HostConfig": {
                "CapDrop": ["ALL"],
                "CapAdd": list(_CAPABILITIES),
                "SecurityOpt": ["no-new-privileges"],
                "NetworkMode": network,
                "Memory": _MEMORY,
                "PidsLimit": _PIDS,
                "NanoCpus": _CPUS,
                "LogConfig": {"Type": "json-file", "Config": {"max-size": "20m"}},
            },
        }

    def _lines(self, container: str) -> AsyncIterator[str]:
        """What it says on both streams, until it ends."""
        query = {"follow": 1, "stdout": 1, "stderr": 1}
        path, what = f"containers/{container}/logs", "follow a build"
        return lines(unframed(self.engine.stream(path, what, query=query, timeout=_LONG_S)))

    async def _remove(self, container: str) -> None:
        with suppress(NotFound, Conflict):
            await self.engine.delete(
                f"containers/{container}", f"remove container {container[:12]}", force=1, v=1
            )


async def unframed(framed: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What an engine's log says on both streams, without the heads that tell them apart. Nothing
    is held back but a head that has not come whole, however long a frame claims to be."""
    head, left = b"", 0
    async for data in framed:
        while data:
            if left:
                yield data[:left]
                data, left = data[left:], max(0, left - len(data))
                continue
            missing = _FRAME.size - len(head)
            head, data = head + data[:missing], data[missing:]
            if len(head) == _FRAME.size:
                head, left = b"", _FRAME.unpack(head)[1]


async def lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Text line by line, without empty ones. One that does not end is told in parts."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    rest = ""
    async for piece in pieces:
        *whole, rest = (rest + decoder.decode(piece)).splitlines(keepends=True) or [""]
        if rest.endswith("\n") or len(rest) > _LONGEST_LINE:
            whole, rest = [*whole, rest], ""
        for part in chain.from_iterable(map(_parts, whole)):
            yield part
    if rest := (rest + decoder.decode(b"", final=True)).rstrip():
        yield rest


def _parts(line: str) -> Iterator[str]:
    cut = (line[start : start + _LONGEST_LINE] for start in range(0, len(line), _LONGEST_LINE))
    return filter(None, map(str.rstrip, cut))


class Steps:
    """Which of several commands runs, by a sign that is said before each.

    What a command prints can hold the sign as well, since it is in the shell's arguments: then the
    progress is ahead of its time, and never beyond the end.
    """

    def __init__(
        self, sign: str, commands: Sequence[str], progress: Callable[[str, float | None], None]
    ) -> None:
        self._sign = sign
        self._commands = commands
        self._progress = progress
        self._begun = -1

    @property
    def current(self) -> str:
        return self._commands[max(self._begun, 0)]

    def hear(self, line: str) -> None:
        if line.strip() != self._sign or self._begun + 1 >= len(self._commands):
            return
        self._begun += 1
        self._progress(f"set-up: {self.current}", self._begun / len(self._commands))


async def set_up(
    builder: Builder,
    image: str,
    commands: Sequence[str],
    *,
    name: str,
    progress: Callable[[str, float | None], None],
) -> None:
    """Run a template's set-up commands on an image, as root and online; the result has the name."""
    sign = f"paddock-{time.monotonic_ns():x} "
    script = f"for c; do echo '{sign}'; /bin/sh -ec \"$c\" < /dev/null || exit; done 2>&1"
    steps = Steps(sign.strip(), commands, progress)
    try:
        argv = ("/bin/sh", "-c", script, "set-up", *commands)
        async with builder.ran(image, argv, steps.hear, online=True) as container:
            await uncancelled(builder.commit(container, name))
    except Ended as ended:
        said = [line for line in ended.tail if not line.startswith(sign.strip())]
        raise Refused(
            f"set-up command {steps.current!r} ended with {ended.status}",
            remediation="its last lines:\n    " + "\n    ".join(said),
        ) from ended


async def sweep(engine: Engine, names: Names, place: Place) -> None:
    """Remove what processes that have ended were building with."""
    for kind in ("containers", "images"):
        listed = await engine.get(f"{kind}/json", f"list its {kind}", all=1, filters=names.filter)
        for seen in (each for each in listed if _abandoned(each, place)):
            with suppress(NotFound, Conflict):
                await engine.delete(f"{kind}/{seen['Id']}", f"remove {seen['Id']}", force=1)


def _abandoned(seen: Mapping[str, Any], place: Place) -> bool:
    marks = seen.get("Labels") or {}
    if marks.get(records.KIND) != records.BUILD:
        return False
    record = records.read(marks, BuildRecord, seen["Id"])
    return not place.is_alive(record.maker, record.created_at)


def tar_of(directory: Path, *, as_root: bool = False) -> AsyncIterator[bytes]:
    """A directory as a tar; `as_root` says that all of it is root's, whoever made it."""
    return images.tar(directory, ("--owner=0", "--group=0") if as_root else ())


def _last_id(said: bytes, what: str) -> str:
    found: list[bytes] = _LOADED.findall(said)
    if not found:
        raise Broken(f"the engine was asked to {what} and did not say what it has become")
    return found[-1].decode()
