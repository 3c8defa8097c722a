"""The simulated provider with memory on disk: the programs of a sandbox are asked to write theirs.

It does so for Python programs (`python3 -c …`) as far as `paddock.testing.memory` goes, and refuses
for everything else. The guest is not among them: the new sandbox has one of its own.
"""

import asyncio
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from paddock.domain.errors import Broken, Refused
from paddock.domain.ids import new_ulid
from paddock.guest_client import Guest
from paddock.ports.provider import Capabilities, SandboxSpec
from paddock.testing import memory as model
from paddock.testing.processes import Proc, is_catching
from paddock.testing.records import MARKER, Record
from paddock.testing.simulated import SimulatedProvider

_LISTEN = f"""
import os, pathlib, paddock_memory
sandbox = pathlib.Path(__file__).parents[1] / "sbx" / os.environ["{MARKER}"]
paddock_memory.listen(sandbox / "memory")
"""
_GO_ON = "import pathlib, sys, paddock_memory; paddock_memory.go_on(pathlib.Path(sys.argv[1]))"
_DETACHED = 'setsid "$@" </dev/null >/dev/null 2>&1 &'


class CheckpointingProvider(SimulatedProvider):
    """Keeps what the Python programs of a sandbox have in memory."""

    patience_s: ClassVar = 5.0
    """How long they have to write it down, or to go on."""

    def __init__(self, place: Path, name: str = "checkpointing") -> None:
        super().__init__(place, name)
        library = place / "lib"
        library.mkdir(exist_ok=True)
        parts = {"paddock_memory.py": Path(model.__file__).read_text(), "sitecustomize.py": _LISTEN}
        for file, text in parts.items():
            # As a whole: a program that starts just now may read it.
            part = library / f"{new_ulid()}.part"
            part.write_text(text)
            part.replace(library / file)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, checkpoint=True)

    def _env(self, record: Record) -> dict[str, str]:
        return {"PYTHONPATH": str(self._place / "lib"), **super()._env(record)}

    def _memory(self, record: Record) -> Path:
        """Images of its programs: those being taken, or those that have yet to go on."""
        return self._records.home(record.id) / "memory"

    async def _capture(self, record: Record, target: Path, *, memory: bool) -> None:
        if not memory:
            await super()._capture(record, target, memory=memory)
            return
        images = self._memory(record)
        images.mkdir()
        try:
            await self._written_down(record, images)
            shutil.copytree(images, target / "memory")
            await super()._capture(record, target, memory=memory)
        finally:
            # At once, so that nobody who is late can write into it any more.
            shutil.rmtree(images.rename(images.with_suffix(".gone")))

    async def _written_down(self, record: Record, images: Path) -> None:
        """Every program has written its image, and waits until that is taken away."""
        give_up_at = time.monotonic() + self.patience_s
        while late := self._without_image(record, images):
            if time.monotonic() > give_up_at:
                numbers = ", ".join(str(proc.pid) for proc in late)
                raise Refused(
                    f"memory of {record.id} cannot be kept: processes {numbers} are not such that "
                    f"provider {self.name} can write them down",
                    remediation="end them first, or take the snapshot without memory",
                )
            for proc in late:
                # To one that does not listen it would be the end.
                if is_catching(proc.pid, model.REQUEST):
                    os.kill(proc.pid, model.REQUEST)
            await asyncio.sleep(0.02)

    def _without_image(self, record: Record, images: Path) -> list[Proc]:
        programs = [proc for proc in record.family.members() if proc.pid != record.pid]
        return [proc for proc in programs if not (images / f"{proc.pid}.json").exists()]

    def _lay_out(self, record: Record, spec: SandboxSpec, source: str) -> None:
        super()._lay_out(record, spec, source)
        for shot in self._read_shots():
            if shot.ref == spec.snapshot and shot.memory:
                kept = self._shots / shot.ref.id / "memory"
                self._memory(record).mkdir()
                for image in kept.iterdir():
                    # Its id is in the paths of a sandbox that has no file system of its own.
                    text = image.read_text().replace(shot.source, record.id)
                    (self._memory(record) / image.name).write_text(text)

    async def _boot(self, record: Record) -> Record:
        booted = await super()._boot(record)
        images = self._memory(record)
        if images.exists():
            await self._gone_on(booted, images)
            shutil.rmtree(images)
        return booted

    async def _gone_on(self, record: Record, images: Path) -> None:
        async with Guest(self._address(record)) as guest:
            for image in images.iterdir():
                program = ("python3", "-c", _GO_ON, str(image))
                await guest.exec(["sh", "-c", _DETACHED, "sh", *program])
        give_up_at = time.monotonic() + self.patience_s
        while any(images.iterdir()):
            if time.monotonic() > give_up_at:
                raise Broken(f"the programs kept for {record.id} do not go on")
            await asyncio.sleep(0.01)
