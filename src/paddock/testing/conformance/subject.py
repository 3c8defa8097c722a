"""The provider under test, and how the checks make, reach and remove its sandboxes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.domain.guest import CommandResult, GuestAddress
from paddock.domain.ids import new_ulid
from paddock.domain.sandbox import Resources
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.guest_client import Guest
from paddock.ports.provider import Capabilities, Observation, Provider, Ref, SandboxSpec
from paddock.testing.conformance.expect import expect, listed
from paddock.testing.conformance.outside import Outside, neighbour

Open = Callable[[], Awaitable[Provider]]
Connect = Callable[[GuestAddress], Guest]

LABEL = "paddock-conformance"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the owner of a provider says about it before it is tried."""

    template: str
    """The name of a template with a POSIX shell and python3."""
    image: str = ""
    """An OCI image with the same; needed where `any_image` is claimed."""
    limits: Resources = field(
        default_factory=lambda: Resources(cpus=1.0, memory_mib=512, disk_mib=256, pids=64)
    )
    """Small ones that the provider accepts: the checks of limits go beyond them."""
    outside: Outside = neighbour
    """Something that an open sandbox reaches and a closed one does not."""
    agents: Path | None = None
    """The directory on this host that sandboxes see the agents of, if that is to be tried too."""
    patience: float = 1.0
    """Multiplies every deadline, for providers that are far away."""
    connect: Connect = Guest


@dataclass(frozen=True, slots=True)
class Box:
    """A running sandbox and a client of its guest."""

    seen: Observation
    guest: Guest

    @property
    def ref(self) -> Ref:
        return self.seen.ref

    async def run(self, *argv: str, **options: Any) -> CommandResult:
        return await self.guest.exec(list(argv), **options)

    async def sh(self, script: str, *arguments: str, **options: Any) -> CommandResult:
        return await self.run("sh", "-c", script, "sh", *arguments, **options)

    async def python(self, program: str, *arguments: str, **options: Any) -> CommandResult:
        return await self.run("python3", "-c", program, *arguments, **options)

    async def say(self, script: str, *arguments: str, **options: Any) -> str:
        """The output of a shell script that has to succeed."""
        return succeeded(await self.sh(script, *arguments, **options), script)

    async def tell(self, program: str, *arguments: str, **options: Any) -> str:
        """The output of a Python program that has to succeed."""
        return succeeded(await self.python(program, *arguments, **options), program)


def succeeded(result: CommandResult, what: str) -> str:
    expect(
        result.exit_code == 0,
        f"`{what.strip()[:120]}` ended with {result.exit_code} ({result.reason}): "
        f"{result.stderr.decode(errors='replace')[-400:]}",
    )
    return result.text.strip()


class Subject:
    """A provider on trial. Everything made through it carries its tag and is swept afterwards."""

    def __init__(self, provider: Provider, open_provider: Open, terms: Terms) -> None:
        self.provider = provider
        self.open_provider = open_provider
        self.terms = terms
        self.tag = new_ulid()
        self._refs: dict[Ref, None] = {}
        self._snapshots: dict[SnapshotRef, None] = {}
        self.volumes: list[str] = []
        """What was made of them in a check; they go with it."""

    @property
    def capabilities(self) -> Capabilities:
        return self.provider.capabilities

    @property
    def absent(self) -> Ref:
        """A reference that looks right and leads to nothing."""
        return Ref(self.provider.name, f"sbx_{new_ulid()}")

    def key(self) -> str:
        return f"{LABEL}-{new_ulid()}"

    def spec(self, *, labels: Mapping[str, str] | None = None, **changes: Any) -> SandboxSpec:
        """A spec like any other, but for what is changed; always with the tag.

        For a fork, which names no source, `template` is given as empty.
        """
        own = {LABEL: self.tag, **(labels or {})}
        if "snapshot" not in changes:
            changes.setdefault("template", self.terms.template)
        changes.setdefault("resources", self.terms.limits)
        return SandboxSpec(labels=own, **changes)

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        return self.remember(await self.provider.create(key, spec))

    def remember(self, seen: Observation) -> Observation:
        self._refs[seen.ref] = None
        return seen

    async def snapshot(
        self, ref: Ref, key: str = "", *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        key = key or self.key()
        taken = await self.provider.snapshot(ref, key, memory=memory, ignore=ignore)
        self._snapshots[taken.ref] = None
        return taken

    @asynccontextmanager
    async def reached(self, seen: Observation) -> AsyncIterator[Box]:
        """A client of the guest of a sandbox that is already there."""
        async with self.terms.connect(await self.provider.guest(seen.ref)) as guest:
            yield Box(seen, guest)

    @asynccontextmanager
    async def sandbox(self, **changes: Any) -> AsyncIterator[Box]:
        """A fresh one, with a client; gone afterwards."""
        seen = await self.create(self.key(), self.spec(**changes))
        try:
            async with self.reached(seen) as box:
                yield box
        finally:
            await self.provider.destroy(seen.ref)

    async def mine(self, **labels: str) -> list[Observation]:
        """What the provider lists as made in this trial."""
        return await listed(self.provider.find({LABEL: self.tag, **labels}))

    async def restart(self) -> None:
        """What the end and the new beginning of a control plane are to a provider."""
        await self.provider.aclose()
        self.provider = await self.open_provider()

    async def sweep(self) -> None:
        """Remove everything of this trial; the first failure is raised after all was tried."""
        failures: list[Exception] = []
        refs, shots = dict(self._refs), list(self._snapshots)
        volumes = self.volumes
        self._refs, self._snapshots, self.volumes = {}, {}, []
        with _noted(failures):
            refs |= {seen.ref: None for seen in await self.mine()}
        for ref in refs:
            with _noted(failures):
                await self.provider.destroy(ref)
        for shot in shots:
            with _noted(failures):
                await self.provider.delete_snapshot(shot)
        for volume in volumes:
            with _noted(failures):
                await self.provider.delete_volume(volume)
        if failures:
            raise failures[0]


@contextmanager
def _noted(failures: list[Exception]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - one failed removal must not keep the others
        failures.append(error)
