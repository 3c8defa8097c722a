"""Templates of the providers that keep their own: listed, added, built, removed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Conflict, Forbidden, NotFound, Unsupported
from paddock.domain.event import Event, EventKind
from paddock.domain.records import taken
from paddock.domain.team import Principal, Scope
from paddock.domain.template import Removed, SourceKind, Template
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.following import Step, Work
from paddock.services.providers import Providers

Progress = Callable[[str, float | None], None]
"""What is being done, and how much of it: 0 to 1, or None where nobody knows."""


class Recipes(Protocol):
    """What a provider that keeps templates has beside the port."""

    @property
    def recipe(self) -> Callable[[str], Template]:
        """By name; NotFound when there is none."""
        ...

    @property
    def recipes(self) -> Callable[[], list[Template]]: ...
    @property
    def add(self) -> Callable[[Template], None]: ...

    async def discard(self, name: str) -> Sequence[Removed]:
        """A recipe and its build, or a build by its digest; Conflict while it is in use."""
        ...

    async def prune(self, *, everything: bool) -> Sequence[Removed]:
        """The builds that nobody needs; unless everything may go, those of recipes stay."""
        ...

    async def image_bytes(self, reference: str) -> int | None:
        """The size of an image that a sandbox named; None if it was not fetched."""
        ...

    async def prune_images(self, needed: Set[str], before: float) -> Sequence[Removed]:
        """Remove images that sandboxes named, fetched before this time, and that nothing uses.
        `needed` are the references of those that stay."""
        ...


class Told:
    """Progress for whoever listens, and for who was told before there were listeners.

    It may be called from any thread.
    """

    def __init__(self, also: Progress) -> None:
        self._also = also
        self._loop = asyncio.get_running_loop()
        self._listeners: set[Callable[[Step], None]] = set()

    def __call__(self, text: str, fraction: float | None) -> None:
        self._also(text, fraction)
        self._loop.call_soon_threadsafe(self._tell, Step(text, fraction))

    def _tell(self, step: Step) -> None:
        for listener in tuple(self._listeners):
            listener(step)

    def listen(self, listener: Callable[[Step], None]) -> Callable[[], None]:
        """What ends it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)


@dataclass(frozen=True, slots=True)
class Pool:
    """Sandboxes of one provider that were made before anybody asked."""

    keep: Callable[[str, int], Awaitable[None]]
    """So many of a template; returns once they are being made, or destroyed."""
    ready: Callable[[str], int]
    configured: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """The templates of one provider."""

    recipes: Recipes
    prepare: Callable[[str], Awaitable[None]]
    told: Told
    pool: Pool | None = None
    """Where sandboxes can wait ready."""


class Templates:
    """They belong to the installation, so only its operators change them: a recipe may name
    directories of the host, and every team's sandboxes are made of them."""

    def __init__(self, store: Store, clock: Clock, providers: Providers) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._building: dict[tuple[str, str], Work] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def list(self, principal: Principal, provider: str) -> Sequence[Template]:
        principal.require(Scope.TEMPLATES_READ)
        kept = self._kept(provider)[1]
        return await asyncio.to_thread(kept.recipes.recipes)

    async def get(self, principal: Principal, provider: str, name: str) -> Template:
        principal.require(Scope.TEMPLATES_READ)
        return await self._recipe(self._kept(provider)[1], name)

    async def add(self, principal: Principal, provider: str, template: Template) -> Template:
        """Instead of the one of that name, if there is one. It is built on first use."""
        _check(principal)
        kept = self._kept(provider)[1]
        if template.source.kind is SourceKind.SNAPSHOT:
            template = await self._of_snapshot(principal, template)
        await asyncio.to_thread(kept.recipes.add, template)
        detail = {"source": template.source.kind.value, "reference": template.source.reference}
        now, team = self._clock.wall(), principal.team_id
        entry = AuditEntry(team, principal.actor, "template.add", template.name, now, detail)
        await self._store.write(lambda tx: tx.audit.append([entry]))
        return template

    async def set_ignore(
        self, principal: Principal, provider: str, name: str, rules: Sequence[str]
    ) -> Template:
        """What snapshots leave out from now on, also of sandboxes that are there. Nothing is built
        anew; those taken before stay as they are."""
        _check(principal)
        kept = self._kept(provider)[1]
        template = replace(await self._recipe(kept, name), snapshot_ignore=tuple(rules))
        await asyncio.to_thread(kept.recipes.add, template)
        now, team = self._clock.wall(), principal.team_id
        detail = {"snapshot_ignore": list(rules)}
        entry = AuditEntry(team, principal.actor, "template.ignore", name, now, detail)
        await self._store.write(lambda tx: tx.audit.append([entry]))
        return template

    async def remove(self, principal: Principal, provider: str, name: str) -> None:
        """By its name, or only a build of it by its digest. Conflict while something uses it."""
        _check(principal)
        place, kept = self._kept(provider)
        if (place, name) in self._building:
            raise Conflict(f"template {name} is being built", remediation="wait for its end")
        await kept.recipes.discard(name)
        await self._note(principal, name, EventKind.TEMPLATE_REMOVED)

    async def prune(
        self, principal: Principal, provider: str, *, everything: bool
    ) -> Sequence[Removed]:
        """Remove the builds that nobody needs; unless everything may go, those of recipes stay."""
        _check(principal)
        kept = self._kept(provider)[1]
        removed = await kept.recipes.prune(everything=everything)
        for each in removed:
            await self._note(principal, each.digest, EventKind.TEMPLATE_REMOVED)
        return removed

    async def build(
        self, principal: Principal, provider: str, name: str
    ) -> AsyncIterator[Step | None]:
        """How it goes, and None whenever nothing was heard for a moment. It goes on to its end
        when nobody listens any more, and who asks meanwhile follows the same build."""
        _check(principal)
        provider_name, kept = self._kept(provider)
        await self._recipe(kept, name)
        place = (provider_name, name)
        if (build := self._building.get(place)) is None:
            build = self._building[place] = Work(f"the build of {name}")
            build.begin(self._build(principal, place, kept, build))
        return build.follow()

    async def aclose(self) -> None:
        """What is half built is thrown away by the provider."""
        for build in tuple(self._building.values()):
            await build.aclose()

    async def _build(
        self, principal: Principal, place: tuple[str, str], kept: Kept, build: Work
    ) -> None:
        provider, name = place
        try:
            # One at a time, because a provider does not say which build its progress is of.
            async with self._turns.setdefault(provider, asyncio.Lock()):
                stop = kept.told.listen(build.hear)
                try:
                    await kept.prepare(name)
                    await asyncio.sleep(0)  # what was said last is told by the loop
                finally:
                    stop()
            await self._note(principal, name, EventKind.TEMPLATE_BUILT)
        finally:
            # Here and not in a callback: those run only after followers may have seen the end.
            self._building.pop(place, None)

    async def _recipe(self, kept: Kept, name: str) -> Template:
        try:
            return await asyncio.to_thread(kept.recipes.recipe, name)
        except NotFound as error:
            hint = error.remediation or "`paddock template ls` lists those there are"
            raise NotFound(error.message, remediation=hint) from error

    async def _of_snapshot(self, principal: Principal, template: Template) -> Template:
        """By our name or id of a snapshot of the team; the provider knows it by its own."""
        wanted = template.source.reference
        found = await self._store.read(lambda tx: tx.snapshots.get(principal.team_id, wanted))
        snapshot = taken(found, wanted)
        if snapshot.quarantine is not None:
            raise Conflict(
                f"snapshot {snapshot.name} is evidence, and a template is for everybody",
                remediation="make a sandbox of it, which is set aside as well; when that was "
                "cleared, take a snapshot of it",
            )
        source = replace(template.source, reference=snapshot.ref)
        return replace(template, source=source)

    async def _note(self, principal: Principal, name: str, kind: EventKind) -> None:
        now, team, actor = self._clock.wall(), principal.team_id, principal.actor

        def write(tx: Transaction) -> None:
            tx.events.append([Event(team, kind, name, now, {}, actor)])
            tx.audit.append([AuditEntry(team, actor, kind, name, now)])

        await self._store.write(write)

    def _kept(self, provider: str) -> tuple[str, Kept]:
        name = provider or self._providers.default
        self._providers.get(name)
        kept = self._providers.templates.get(name)
        if not isinstance(kept, Kept):
            raise Unsupported(
                f"provider {name} keeps no templates of its own",
                remediation="name the provider local, if it is in use; others take images",
            )
        return name, kept


def _check(principal: Principal) -> None:
    principal.require(Scope.TEMPLATES_WRITE)
    if not principal.operator:
        raise Forbidden(
            "templates are the whole installation's, so only its operators change them",
            remediation="ask the team that runs it, or make sandboxes of a snapshot",
        )
