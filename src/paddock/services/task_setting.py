"""What an agent is given: its program, the way to its model, its tools, and what it may know."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from paddock.domain.agent import Brief, PlacedFile, Traits
from paddock.domain.broker.binding import Binding, Way, url_inside
from paddock.domain.broker.models import KNOWN
from paddock.domain.conversation import Stage
from paddock.domain.errors import InvalidRequest, NotFound, Unsupported
from paddock.domain.records import SandboxRecord
from paddock.domain.task import TaskRecord
from paddock.domain.task_review import agent_at, mode_at, model_at, opening
from paddock.domain.task_wish import TaskWish, prompt_in_full
from paddock.domain.team import Principal
from paddock.ports.agent import Agent
from paddock.services.bindings import Bindings
from paddock.services.task_workspace import Place

Program = Callable[[str], Awaitable[str]]
"""The program of an agent as sandboxes see it; it is installed if it is not yet."""
AuthFiles = Callable[[str, Traits, str], Awaitable[tuple[PlacedFile, ...]]]
"""Of a team, for an agent whose home is there: what its own log-in made, fit to leave this host."""

CheckVariables = Callable[[Principal, Mapping[str, str]], Awaitable[None]]
"""InvalidRequest for what somebody may not have in a prompt, such as a secret."""


@dataclass(frozen=True, slots=True)
class Given:
    """What an agent starts with."""

    brief: Brief
    files: tuple[PlacedFile, ...] = ()


class AgentSettings:
    """Of all agents that are known."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        bindings: Bindings,
        *,
        program: Program,
        auth_files: AuthFiles,
        check_variables: CheckVariables,
    ) -> None:
        self._agents = agents
        self._bindings = bindings
        self._program = program
        self._auth_files = auth_files
        self._check_variables = check_variables

    def agent(self, name: str) -> Agent:
        if (found := self._agents.get(name)) is not None:
            return found
        raise InvalidRequest(
            f"there is no agent {name[:80]!r}",
            remediation=f"use one of {', '.join(sorted(self._agents))}: `paddock agents` says more",
        )

    async def check(
        self, principal: Principal, wish: TaskWish, sandbox: SandboxRecord | None
    ) -> None:
        """Before anything is made: that there is such an agent, and that it can reach a model."""
        if wish.review is not None and wish.review.rounds:
            reviewing = replace(self._reviewing(wish), variables=None)  # they are looked at once
            await self.check(principal, reviewing, sandbox)
        if wish.variables:
            await self._check_variables(principal, wish.variables)
        agent = self.agent(wish.agent)
        if wish.tools and not agent.traits.tools:
            raise InvalidRequest(
                f"{wish.agent} cannot be given MCP servers", remediation="leave `tools` out"
            )
        team_id, app = principal.team_id, wish.workspace.app
        bound = self._bindings.of(sandbox) if sandbox else self._bindings.of_any(team_id, app)
        routes = _routes(bound)
        urls, keys = ways_to_models(routes, {**(sandbox.env if sandbox else {}), **wish.env})
        agent.check(
            Brief(
                wish.prompt,
                "check",
                cwd="/",
                home="/",
                model=wish.model or agent.traits.default_model,
                mode=wish.mode,
                routes=urls,
                keys=keys,
                options=wish.options,
            )
        )
        names = {*wish.env, *(sandbox.env if sandbox else ())}
        if not _has_credential(agent.traits, routes, names) and not await self._auth_files(
            team_id, agent.traits, ""
        ):
            raise _lacking(agent.traits)

    async def only(
        self, principal: Principal, wish: TaskWish, sandbox: SandboxRecord | None
    ) -> str:
        """The agent of a task that names none: the only one that could take it."""
        ready = []
        for name in sorted(self._agents):
            with suppress(InvalidRequest, NotFound, Unsupported):
                await self.check(principal, replace(wish, agent=name), sandbox)
                ready.append(name)
        if len(ready) == 1:
            return ready[0]
        found = (
            f"several can run this task: {', '.join(ready)}" if ready else "none is ready for it"
        )
        raise InvalidRequest(
            f"no agent was given, and {found}",
            remediation="name one with `agent` (`--agent`); `paddock agents` shows what each needs",
        )

    def _reviewing(self, wish: TaskWish) -> TaskWish:
        """The wish as the reviewer has it: what only another agent understands is not for it."""
        agent = agent_at(wish, Stage.REVIEW)
        is_same = agent == wish.agent
        return replace(
            wish,
            agent=agent,
            model=model_at(wish, Stage.REVIEW),
            mode=mode_at(wish, Stage.REVIEW),
            review=None,
            options=wish.options if is_same else {},
            tools=wish.tools if self.agent(agent).traits.tools else (),
        )

    async def given(self, task: TaskRecord, sandbox: SandboxRecord, place: Place) -> Given:
        wish, conversation = task.wish, task.conversation
        prompt = conversation.prompt or opening(wish, conversation.stage)
        mode = mode_at(wish, conversation.stage)
        wish = self._reviewing(wish) if conversation.stage is Stage.REVIEW else wish
        traits = self.agent(wish.agent).traits
        routes = _routes(self._bindings.of(sandbox))
        urls, keys = ways_to_models(routes, {**sandbox.env, **wish.env})
        brief = Brief(
            prompt,
            conversation.run_key(task.id),
            cwd=place.directory,
            home=place.home,
            model=wish.model or traits.default_model,
            mode=mode,
            program=await self._program(wish.agent) if traits.package else "",
            session=conversation.session,
            routes=urls,
            keys=keys,
            tools=wish.tools,
            options=wish.options,
            env=wish.env,
        )
        known = {*wish.env, *sandbox.env}
        if _has_credential(traits, routes, known):
            return Given(brief)
        return Given(brief, await self._auth_files(task.team_id, traits, place.home))


def in_full(task: TaskRecord, sandbox: SandboxRecord, directory: str) -> TaskWish:
    """Its wish with the prompt as its agent reads it, once it is known where it works."""
    wish = task.wish
    if wish.variables is None:
        return wish
    known = {
        "task_id": task.id,
        "task_name": task.name,
        "sandbox": sandbox.name,
        "sandbox_id": sandbox.id,
        "directory": directory,
    }
    return replace(wish, prompt=prompt_in_full(wish, known), variables=None)


def _routes(bindings: Iterable[Binding]) -> dict[str, Binding]:
    return {each.route: each for each in bindings if each.way is Way.MODEL}


def ways_to_models(
    routes: Mapping[str, Binding], env: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """By route, the base URL and the name of the variable that holds the key.

    A base URL in the environment of the task or its sandbox comes before a bound route: the key
    beside it must not go anywhere else, whether or not an agent reads that variable itself."""
    urls = {name: url_inside(each)[1] for name, each in routes.items()}
    keys = {name: each.env for name, each in routes.items()}
    for name, known in KNOWN.items():
        if url := env.get(known.url_variable):
            urls[name] = url
            if known.key_variable in env:
                keys[name] = known.key_variable
    return urls, keys


def _has_credential(traits: Traits, routes: Mapping[str, Binding], names: set[str]) -> bool:
    if not traits.needs:
        return True
    return any(need.route in routes or need.variable in names for need in traits.needs)


def _lacking(traits: Traits) -> NotFound:
    first = traits.needs[0]
    names = " or ".join(need.variable for need in traits.needs)
    return NotFound(
        f"{traits.name} needs a credential, and there is none: {names}",
        remediation=f"`paddock secrets set {first.variable}`, then `paddock secrets bind "
        f"{first.variable} --as model --route {first.route}`; it stays outside the sandbox",
    )
