"""Templates of the providers that keep their own: listed, added, built, removed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from paddock.domain.audit import AuditEntry
from paddock.domain.build import Family
from paddock.domain.errors import Conflict, Forbidden, NotFound, PaddockError, Unsupported
from paddock.domain.event import EventKind
from paddock.domain.records import taken
from paddock.domain.team import Principal, Scope
from paddock.domain.template import Removed, SourceKind, Template, TemplateSource
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.build_records import DEFAULT_TAG
from paddock.services.builds import Builds
from paddock.services.following import Step
from paddock.services.provider_templates import Kept
from paddock.services.providers import Providers
from paddock.services.template_builds import TemplateBuilds, note_of


@dataclass(frozen=True, slots=True)
class Listed:
    """A template that sandboxes can be made of."""

    template: Template
    is_built: bool
    tags: tuple[str, ...] = ()
    """Tags of a team's template; NAME:TAG selects a build."""


class Templates:
    """They belong to the installation, so only its operators change them: a recipe may name
    directories of the host, and every team's sandboxes are made of them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        providers: Providers,
        *,
        builds: TemplateBuilds,
        teams: Builds,
    ) -> None:
        self._store = store
        self._clock = clock
        self._providers = providers
        self._builds = builds
        self._teams = teams

    async def list(self, principal: Principal, provider: str) -> Sequence[Listed]:
        """The team's own and the installation's, by name; of the same name only the team's, which
        is what the name means to that team."""
        principal.require(Scope.TEMPLATES_READ)
        own = {each.name: each for each in await self._teams.families(principal)}
        found = {name: team for name, each in own.items() if (team := of_family(each))}
        try:
            kept = self._kept(provider)[1]
        except Unsupported:
            if not found:
                raise
            return [found[name] for name in sorted(found)]
        for recipe in await asyncio.to_thread(kept.recipes.recipes):
            if recipe.name not in found:
                found[recipe.name] = await _listed(kept, recipe)
        return [found[name] for name in sorted(found)]

    async def get(self, principal: Principal, provider: str, name: str) -> Listed:
        principal.require(Scope.TEMPLATES_READ)
        if (own := await self._own(principal, name)) is not None:
            return own
        return await self.described(provider, name)

    async def described(self, provider: str, name: str) -> Listed:
        """A template of the installation, for a caller who may change it."""
        kept = self._kept(provider)[1]
        return await _listed(kept, await self._recipe(kept, name))

    async def add(self, principal: Principal, provider: str, template: Template) -> Template:
        """Instead of the one of that name, if there is one. It is built on first use."""
        _check(principal)
        await self._check_not_own(principal, template.name)
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
        """By its name, or only a build of it by its digest. Conflict while something uses it. One
        of the team's own goes with all its builds; anybody of the team may remove it."""
        if await self._is_meant_own(principal, provider, name):
            await self._teams.delete(principal, name)
            return
        _check(principal)
        place, kept = self._kept(provider)
        if self._builds.is_underway(place, name):
            raise Conflict(f"template {name} is being built", remediation="wait for its end")
        await kept.recipes.discard(name)
        await self._note(principal, name)

    async def prune(
        self, principal: Principal, provider: str, *, everything: bool
    ) -> Sequence[Removed]:
        """Remove the builds that nobody needs; unless everything may go, those of recipes stay."""
        _check(principal)
        kept = self._kept(provider)[1]
        removed = await kept.recipes.prune(everything=everything)
        for each in removed:
            await self._note(principal, each.digest)
        return removed

    async def build(
        self, principal: Principal, provider: str, name: str
    ) -> AsyncIterator[Step | None]:
        """How it goes, and None whenever nothing was heard for a moment. It goes on to its end
        when nobody listens any more, and who asks meanwhile follows the same build."""
        _check(principal)
        await self._check_not_own(principal, name)
        provider_name, kept = self._kept(provider)
        await self._recipe(kept, name)
        return self._builds.follow(principal, provider_name, name, kept=kept)

    async def _own(self, principal: Principal, name: str) -> Listed | None:
        if not await self._teams.is_taken(principal, name):
            return None
        return of_family(await self._teams.family(principal, name))

    async def _is_meant_own(self, principal: Principal, provider: str, name: str) -> bool:
        """Builds of the team that are not ready hide no template of the installation."""
        if not await self._teams.is_taken(principal, name):
            return False
        if await self._own(principal, name) is not None:
            return True
        try:
            await self.described(provider, name)
        except (NotFound, Unsupported):
            return True
        return False

    async def _check_not_own(self, principal: Principal, name: str) -> None:
        if await self._own(principal, name) is not None:
            raise Conflict(
                f"your team has built its own template {name} from code",
                remediation=f"build it again from its code, choose another name, or remove it: "
                f"`paddock template rm {name}`",
            )

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

    async def _note(self, principal: Principal, name: str) -> None:
        await self._store.write(
            note_of(principal, name, EventKind.TEMPLATE_REMOVED, self._clock.wall())
        )

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


def of_family(family: Family) -> Listed | None:
    """Return a team's template; None while no build of it is ready."""
    tags = sorted(family.tags, key=lambda tag: (tag != DEFAULT_TAG, tag))
    build = family.builds.get(family.tags[tags[0]]) if tags else None
    if build is None:
        return None
    left = build.left
    template = Template(
        family.name,
        TemplateSource(SourceKind.SNAPSHOT, left.snapshot_id),
        env=tuple(left.env.items()),
        user=left.user or "user",
        workdir=left.workdir,
    )
    return Listed(template, is_built=True, tags=tuple(tags))


async def _listed(kept: Kept, recipe: Template) -> Listed:
    try:
        return Listed(recipe, is_built=await kept.is_built(recipe.name))
    except PaddockError:
        return Listed(recipe, is_built=False)  # its source cannot be looked at now


def _check(principal: Principal) -> None:
    principal.require(Scope.TEMPLATES_WRITE)
    if not principal.operator:
        raise Forbidden(
            "templates are the whole installation's, so only its operators change them",
            remediation="ask the team that runs it, or make sandboxes of a snapshot",
        )
