"""Agents of this installation: which there are, which are ready for a team, and their programs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from paddock.domain.agent import AuthFile, Need, Package, PlacedFile, Traits
from paddock.domain.audit import AuditEntry
from paddock.domain.auth_file import blanked
from paddock.domain.broker.binding import Way
from paddock.domain.errors import Forbidden, InvalidRequest, NotFound
from paddock.domain.secret import TEAM_SCOPE, Secret, Use, may_go
from paddock.domain.team import Principal, Scope
from paddock.ports.agent import Agent
from paddock.ports.agent_store import AgentStore, Installed
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.bindings import Bindings
from paddock.services.following import Step, Work
from paddock.services.providers import Providers
from paddock.services.secrets import Secrets


class Had(StrEnum):
    """How far a team is with a credential."""

    BOUND = "bound"
    """To the model API: sandboxes use it and never see it."""
    SET = "set"
    """As a secret that no agent can use: a key has to be bound, a file be allowed to go there."""
    ALLOWED = "allowed"
    """As a file of a log-in that may go to agents."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Credential:
    """One that an agent could use."""

    name: str
    had: Had
    route: str = ""
    path: str = ""
    """For a file that a log-in made: where it goes in the agent's home."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An agent as a team finds it."""

    traits: Traits
    installed: bool
    """False also for one that the sandbox has to bring along."""
    credentials: tuple[Credential, ...]
    lacks: tuple[str, ...]
    """Why no task of the team can use it now, each with what to do."""

    @property
    def ready(self) -> bool:
        return not self.lacks


class Agents:
    """What is installed is the whole installation's; what is ready is each team's."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        packages: AgentStore,
        *,
        store: Store,
        clock: Clock,
        providers: Providers,
        secrets: Secrets,
        bindings: Bindings,
    ) -> None:
        self.known = agents
        """All that there are, by name."""
        self._packages = packages
        self._store = store
        self._clock = clock
        self._providers = providers
        self._secrets = secrets
        self._bindings = bindings
        self._working: dict[str, Work] = {}

    async def list(self, principal: Principal) -> Sequence[Seen]:
        """By name."""
        principal.require(Scope.TASKS_READ)
        return [await self._seen(principal.team_id, each) for each in sorted(self.known)]

    async def get(self, principal: Principal, name: str) -> Seen:
        principal.require(Scope.TASKS_READ)
        self._traits(name)
        return await self._seen(principal.team_id, name)

    async def install(self, principal: Principal, name: str) -> AsyncIterator[Step | None]:
        """How it goes, and None whenever nothing was heard for a moment. One that is there is
        tried, and installed anew if it does not answer. It goes on when nobody listens any more."""
        principal.require(Scope.TASKS_WRITE)
        package = self._package(name)
        if not principal.operator:
            raise Forbidden(
                "agents are installed for the whole installation, so only its operators do that",
                remediation="start a task: what it needs is installed for it",
            )
        now, team = self._clock.wall(), principal.team_id
        detail = {"package": package.name, "version": package.version}
        entry = AuditEntry(team, principal.actor, "agent.install", name, now, detail)
        await self._store.write(lambda tx: tx.audit.append([entry]))
        return self._work(name, package).follow()

    async def program(self, name: str) -> str:
        """As sandboxes see it; it is installed if it is not yet, or not as it was then."""
        package = self._package(name)
        if (found := await self._packages.find(package)) is None:
            await self._work(name, package).ended()
            found = await self._packages.find(package)
        if found is None:
            raise NotFound(
                f"{package} is gone just after it was installed",
                remediation="see who else removes files from the directory of agents",
            )
        return found.inside

    async def auth_files(self, team_id: str, traits: Traits, home: str) -> tuple[PlacedFile, ...]:
        """What a log-in of the agent made, as far as the team has it; nothing in it refreshes."""
        names = await self._secrets_of(team_id, [each.secret for each in traits.auth_files])
        files = []
        for each in traits.auth_files:
            if each.secret in names:
                text = await self._secrets.value_for(team_id, each.secret, Use.AGENT)
                files.append(PlacedFile(f"{home}/{each.path}", blanked(text).encode()))
        return tuple(files)

    async def aclose(self) -> None:
        """What is half installed is thrown away."""
        for work in tuple(self._working.values()):
            await work.aclose()

    def _work(self, name: str, package: Package) -> Work:
        if (work := self._working.get(name)) is None:
            work = self._working[name] = Work(f"the installation of {package}")
            work.begin(self._install(name, package, work))
        return work

    async def _install(self, name: str, package: Package, work: Work) -> None:
        try:
            await self._packages.install(package, lambda text, part: work.hear(Step(text, part)))
        finally:
            self._working.pop(name, None)

    async def _seen(self, team_id: str, name: str) -> Seen:
        traits = self._traits(name)
        credentials = await self._credentials(team_id, traits)
        found = await self._packages.find(traits.package) if traits.package else None
        lacks = [*self._lacks_program(traits, found), *_lacks_credential(traits, credentials)]
        return Seen(traits, bool(found), credentials, tuple(lacks))

    def _lacks_program(self, traits: Traits, found: Installed | None) -> Sequence[str]:
        if traits.package is None:
            return []
        provider = self._providers.in_use
        if not self._providers.get(provider).capabilities.agents:
            return [f"sandboxes of the provider {provider} see none of the host's agents"]
        if found is None and (why := self._packages.why_not()):
            return [f"not installed, and {why}"]
        return []

    async def _credentials(self, team_id: str, traits: Traits) -> tuple[Credential, ...]:
        names = [each.variable for each in traits.needs]
        names += [each.secret for each in traits.auth_files]
        known = await self._secrets_of(team_id, names)
        models = [each for each in self._bindings.of_any(team_id, "") if each.way is Way.MODEL]
        routes = {each.route for each in models}

        def of_key(need: Need) -> Credential:
            had = Had.SET if need.variable in known else Had.MISSING
            return Credential(need.variable, Had.BOUND if need.route in routes else had, need.route)

        def of_file(file: AuthFile) -> Credential:
            secret = known.get(file.secret)
            allowed = secret is not None and may_go(secret.policy, Use.AGENT)
            had = Had.ALLOWED if allowed else Had.SET if secret else Had.MISSING
            return Credential(file.secret, had, path=file.path)

        return (*map(of_key, traits.needs), *map(of_file, traits.auth_files))

    async def _secrets_of(self, team_id: str, names: Sequence[str]) -> Mapping[str, Secret]:
        """Those that are set, without an app's."""

        def read(tx: Transaction) -> dict[str, Secret]:
            found = [tx.secrets.get(team_id, TEAM_SCOPE, name) for name in names]
            return {each.name: each for each in found if each is not None}

        return await self._store.read(read)

    def _traits(self, name: str) -> Traits:
        if (agent := self.known.get(name)) is None:
            raise NotFound(
                f"there is no agent {name[:80]!r}",
                remediation=f"there are: {', '.join(sorted(self.known))}",
            )
        return agent.traits

    def _package(self, name: str) -> Package:
        if (package := self._traits(name).package) is None:
            raise InvalidRequest(
                f"{name} is not installed by Paddock: the sandbox has to bring its program along",
                remediation="put the program into the template, and name its command in the task",
            )
        return package


def _lacks_credential(traits: Traits, credentials: Sequence[Credential]) -> Sequence[str]:
    if not traits.needs:
        return []
    if any(each.had in (Had.BOUND, Had.ALLOWED) for each in credentials):
        return []
    for each in credentials:
        if each.had is Had.SET and each.path:
            allow = f"paddock secrets set {each.name} --policy agent_access"
            return [f"{each.name} is set but may not go to agents: `{allow}`"]
        if each.had is Had.SET:
            return [f"{each.name} is set but not bound: `{_bind(each)}`"]
    first = credentials[0]
    return [f"no credential: `paddock secrets set {first.name}`, then `{_bind(first)}`"]


def _bind(credential: Credential) -> str:
    return f"paddock secrets bind {credential.name} --as model --route {credential.route}"
