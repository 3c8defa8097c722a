"""The running part of a sandbox: start it, bring its guest in, end it, say why it ended."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.fencing import Fencing
from paddock.adapters.providers.docker.joined import JoinedGuests
from paddock.adapters.providers.docker.network import OpenNetwork
from paddock.adapters.providers.docker.notes import Note
from paddock.adapters.providers.docker.packed import NOT_FOUND, TOO_OLD, PackedGuests
from paddock.adapters.providers.docker.place import Place
from paddock.adapters.providers.docker.records import JOINED, Container, SandboxRecord, find
from paddock.adapters.providers.docker.slips import Slips
from paddock.domain.errors import (
    Broken,
    Conflict,
    InvalidRequest,
    PaddockError,
    TimedOut,
    Unavailable,
)
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.guest_client import Guest

_GRACE_S = 10.0
_ANSWERS_WITHIN_S = 30.0
_EVENTS_S = 3.0
_SWITCHED_WITHIN_S = 10.0
_HEARSAY_S = 0.3
"""How much later than the end of a container the engine may hear of its cause."""
_KILLED = 137
_ENDED_FROM_OUTSIDE = (0, 143, 255)
"""Exit codes of a first process that was asked to end, or whose end nobody saw: the engine or the
host went down. By itself it never ends so."""
_ABOUT_PYTHON = {
    TOO_OLD: "has a python3 older than 3.9",
    **dict.fromkeys(NOT_FOUND, "has no python3 that could be started"),
}


@dataclass(frozen=True, slots=True)
class Machines:
    """Starts and ends the containers of one installation."""

    engine: Engine
    place: Place
    network: OpenNetwork
    notes: Slips[Note]
    joined: JoinedGuests | None
    packed: PackedGuests
    fencing: Fencing
    on_step: Callable[[str], None]

    def guests(self, record: SandboxRecord) -> JoinedGuests | PackedGuests:
        if record.guest != JOINED:
            return self.packed
        if self.joined is None or not self.place.shares(record.maker):
            raise Unavailable(
                f"the guest of the sandbox with the key {record.key!r} was joined from elsewhere",
                remediation=f"use the control plane that runs as root with {record.maker.run}",
            )
        return self.joined

    async def power_on(self, container: Container) -> Container:
        """Start it on the disk it has; its guest answers afterwards, behind its fence."""
        guests = self.guests(container.record)
        await guests.prepare(container)
        self.on_step("boot.prepared")
        try:
            await self.engine.post(
                f"containers/{container.id}/start", f"start container {container.name}"
            )
        except PaddockError:
            _blame_image(await find(self.engine, container.id))
            raise
        self.on_step("boot.started")
        container = await find(self.engine, container.id)
        self.network.separate()
        await guests.enter(container)
        self.on_step("boot.guest")
        await self._greet(container, guests)
        await self.fencing.put(container)
        self.on_step("boot.fenced")
        return container

    async def _greet(self, container: Container, guests: JoinedGuests | PackedGuests) -> None:
        """Wait until the guest answers, or until it is clear that it never will."""
        until = time.monotonic() + _ANSWERS_WITHIN_S
        while True:
            try:
                async with Guest(await guests.address(container)) as guest:
                    await guest.health()
                    await guests.introduce(container, guest)
                    return
            except (Unavailable, TimedOut):
                now = await find(self.engine, container.id)
                if now.state is not SandboxState.RUNNING:
                    _blame_image(now)
                    raise
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)

    async def hold_still(self, container: Container) -> None:
        await self._switch(container, "pause", SandboxState.PAUSED)

    async def let_go_on(self, container: Container) -> None:
        await self._switch(container, "unpause", SandboxState.RUNNING)

    async def _switch(self, container: Container, verb: str, wanted: SandboxState) -> None:
        """Return when the engine says so itself: it does it at once and notices a little later."""
        try:
            await self.engine.post(
                f"containers/{container.id}/{verb}", f"{verb} container {container.name}"
            )
        except (Conflict, Broken):
            if (await find(self.engine, container.id)).state is not wanted:
                raise
        until = time.monotonic() + _SWITCHED_WITHIN_S
        while (now := await find(self.engine, container.id)).state is not wanted:
            if time.monotonic() > until:
                raise Broken(f"container {now.name} is {now.status} after it was told to {verb}")
            await asyncio.sleep(0.01)

    async def ask_to_finish(self, container: Container, grace: float = _GRACE_S) -> None:
        """Let its processes end by themselves; one that cannot be asked is not waited for."""
        try:
            address = await self.guests(container.record).address(container)
            async with asyncio.timeout(grace + 2), Guest(address) as guest:
                await guest.shutdown(grace)
        except (Unavailable, TimedOut, TimeoutError):
            return

    async def power_off(self, container: Container, reason: Reason, detail: str = "") -> None:
        """End the machine, keep the disk; why is noted first."""
        await self.notes.write(Note(reason, detail, container.id))
        self.on_step("stop.noted")
        with suppress(Conflict):  # it had ended by itself
            await self.engine.post(
                f"containers/{container.id}/kill", f"end container {container.name}", signal="KILL"
            )
        await self.engine.post(f"containers/{container.id}/wait", "see it end")
        self.on_step("stop.ended")
        await self.forget(container)

    async def forget(self, container: Container) -> None:
        await self.fencing.leave(container.id)
        with suppress(Unavailable):
            await self.guests(container.record).forget(container.id)

    def has_guest(self, container: Container) -> bool:
        """False only where it can be known that nobody answers there any more."""
        if container.record.guest != JOINED or self.joined is None:
            return True
        return not self.place.shares(container.record.maker) or self.joined.is_alive(container)

    async def end_without_guest(self, container: Container) -> None:
        """A sandbox that nobody can talk to has ended, whatever still runs in it."""
        if self.joined is not None and self.joined.oom_kills(container):
            await self.power_off(container, Reason.OOM, "the kernel was out of memory for it")
        else:
            detail = "its guest ended, or somebody restarted it past Paddock"
            await self.power_off(container, Reason.CRASHED, detail)

    async def why_ended(self, container: Container) -> tuple[Reason, str]:
        if (note := await self.notes.read(container.id)) is not None:
            return note.reason, note.detail
        if container.oom_killed or await self._was_short_of_memory(container):
            return Reason.OOM, "the kernel was out of memory for it"
        host_restarted = container.record.guest == JOINED and container.started_at < _booted_at()
        if container.exit_code in _ENDED_FROM_OUTSIDE or host_restarted:
            detail = "the engine or its host went down, or somebody stopped it there"
            return Reason.PROVIDER_LOST, detail
        if container.exit_code == _KILLED:
            return Reason.CRASHED, "its first process was killed on the engine's host"
        return Reason.CRASHED, f"its first process ended with {container.exit_code}"

    async def _was_short_of_memory(self, container: Container) -> bool:
        """An engine that hears of the end before it hears of the cause does not write it down."""
        if container.exit_code != _KILLED:
            return False
        query: dict[str, str | int] = {
            "since": int(container.started_at),
            "until": f"{time.time() + _HEARSAY_S:.6f}",
            "filters": json.dumps({"container": [container.id], "event": ["oom"]}),
        }
        try:
            heard = await self.engine.fetch(
                "events", "tell what happened", query=query, timeout=_EVENTS_S
            )
        except PaddockError:
            return False
        return bool(heard.strip())

    async def aclose(self) -> None:
        await self.packed.aclose()
        if self.joined is not None:
            await self.joined.aclose()


def _blame_image(container: Container) -> None:
    """Raise what the first process's exit code says about the image, if it says anything."""
    if container.record.guest == JOINED or container.exit_code not in _ABOUT_PYTHON:
        return
    template = container.record.defaults.template
    raise InvalidRequest(
        f"template {template} {_ABOUT_PYTHON[container.exit_code]}, and the guest needs one there",
        remediation=(
            "use an image with Python 3.9 or newer on its PATH; where Paddock runs as root on the "
            "engine's own host, the image needs none"
        ),
    )


def _booted_at() -> float:
    """When this host started; 0 where that cannot be known."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/stat").read_text().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("btime ")))
    return 0.0
