"""Template builds in this process, and their followers."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import NotFound
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.following import Step, Work
from paddock.services.provider_templates import Kept, listen
from paddock.services.providers import Providers

_LONGEST = 200

_Place = tuple[str, str, int | None]
"""Provider, template, and how many MiB an image may have: teams have different limits."""


@dataclass(slots=True, eq=False)
class _Build:
    work: Work
    waiting: int = 0
    """How many creations of sandboxes wait for it."""
    is_wanted: bool = False
    """Requested by `template build`: it continues without followers."""


class TemplateBuilds:
    """One build per template, however many follow it."""

    def __init__(self, store: Store, clock: Clock, providers: Providers) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._underway: dict[_Place, _Build] = {}
        self._ending: set[Work] = set()

    def is_underway(self, provider: str, name: str) -> bool:
        return (provider, name, None) in self._underway

    def follow(
        self, principal: Principal, provider: str, name: str, *, kept: Kept
    ) -> AsyncIterator[Step | None]:
        """The steps of the build, which is begun unless it is underway; see `Work.follow`."""
        build = self._begun(principal, (provider, name, None), kept)
        build.is_wanted = True
        return build.work.follow()

    async def prepare(
        self, sandbox: SandboxRecord, principal: Principal, most_mib: int | None
    ) -> None:
        """Build the template of a new sandbox, and record the progress as events of the sandbox.

        Here, because create() has a shorter deadline and reports no progress. An image that is
        larger than `most_mib` is not fetched.
        """
        kept = self._providers.templates.get(sandbox.provider)
        if sandbox.snapshot_id or sandbox.parent_id or not isinstance(kept, Kept):
            return
        try:
            if await kept.is_built(sandbox.template):
                return
        except NotFound:
            return  # the provider says so itself, or knows an image of this name
        place = (sandbox.provider, sandbox.template, most_mib)
        build = self._begun(principal, place, kept)
        build.waiting += 1
        try:
            last = None
            async for step in build.work.follow():
                if step is not None and is_news(last, step):
                    last = step
                    await self._report(sandbox, step, principal)
        finally:
            build.waiting -= 1
            self._drop_unless_wanted(place, build)

    async def aclose(self) -> None:
        """Cancel all builds. The provider removes partial results."""
        for work in (*self._ending, *(each.work for each in self._underway.values())):
            await work.aclose()

    def _begun(self, principal: Principal, place: _Place, kept: Kept) -> _Build:
        if (build := self._underway.get(place)) is None:
            work = Work(f"the build of {place[1]}")
            build = self._underway[place] = _Build(work)
            work.begin(self._build(principal, place, kept, build))
        return build

    def _drop_unless_wanted(self, place: _Place, build: _Build) -> None:
        """Cancel a build that no creation waits for, in the background."""
        if build.waiting or build.is_wanted or self._underway.get(place) is not build:
            return
        del self._underway[place]
        self._ending.add(build.work)
        build.work.cancel(self._ending.discard)

    async def _report(self, sandbox: SandboxRecord, step: Step, principal: Principal) -> None:
        data = {
            "state": sandbox.state,
            "name": sandbox.name,
            **app_in(sandbox),
            "text": step.text[:_LONGEST],
            "fraction": step.fraction,
        }
        now, kind = self._clock.wall(), EventKind.SANDBOX_PROGRESS
        event = Event(sandbox.team_id, kind, sandbox.id, now, data, principal.actor)
        await self._store.write(lambda tx: tx.events.append([event]))

    async def _build(self, principal: Principal, place: _Place, kept: Kept, build: _Build) -> None:
        _, name, most_mib = place
        try:
            listen(build.work.hear)
            await kept.prepare(name, most_mib)
            now = self._clock.wall()
            await self._store.write(note_of(principal, name, EventKind.TEMPLATE_BUILT, now))
        finally:
            # Here and not in a callback: those run only after followers may have seen the end.
            if self._underway.get(place) is build:
                del self._underway[place]


def is_news(last: Step | None, step: Step) -> bool:
    """Whether a step is worth an event: something else is done, or a tenth more of it."""
    if last is None or last.text != step.text:
        return True
    return (step.fraction or 0.0) >= (last.fraction or 0.0) + 0.1


def note_of(
    principal: Principal, name: str, kind: EventKind, now: float
) -> Callable[[Transaction], None]:
    """Write that something happened to a template."""
    team, actor = principal.team_id, principal.actor

    def write(tx: Transaction) -> None:
        tx.events.append([Event(team, kind, name, now, {}, actor)])
        tx.audit.append([AuditEntry(team, actor, kind, name, now)])

    return write
