"""The environment of a sandbox's commands, set while it runs."""

from collections.abc import Mapping
from dataclasses import replace

from paddock.domain.quarantine import check_open
from paddock.domain.records import SandboxRecord, alive
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import Use
from paddock.domain.team import Principal, Scope
from paddock.services.broker import Broker
from paddock.services.changes import Changes
from paddock.services.guests import Guests
from paddock.services.secrets import Secrets


class Configuration:
    """What is set for an app, in the environment of every program of its sandboxes.

    It is told to the guest when a machine begins to run, and kept nowhere else: neither the
    sandbox's record nor its provider's has it.
    """

    def __init__(self, secrets: Secrets, guests: Guests, broker: Broker) -> None:
        self._secrets = secrets
        self._guests = guests
        self._broker = broker

    def concerns(self, sandbox: SandboxRecord) -> bool:
        """Whether there is anything to give to one that is made."""
        is_copy = bool(sandbox.parent_id or sandbox.snapshot_id)
        return bool(sandbox.app) or is_copy or self._broker.concerns(sandbox)

    async def give(self, sandbox: SandboxRecord) -> None:
        """The sandbox's own variables stand over the app's, and those over the team's."""
        env = dict(sandbox.env)
        if sandbox.app:
            found = await self._secrets.environment(sandbox.team_id, sandbox.app, Use.RUNTIME)
            # One that is bound is inside as a placeholder, whatever its policy would allow.
            bound = self._broker.bound(sandbox)
            env = {name: value for name, value in found.items() if name not in bound}
            secret = await self._secrets.sensitive_names(sandbox.team_id, sandbox.app)
            lent = {env[name]: f"({name})" for name in secret & env.keys()}
            await self._broker.lend(sandbox, lent)
        await self._broker.give(sandbox)

        async def tell(bound: Mapping[str, str]) -> None:
            if told := {**env, **bound, **sandbox.env}:
                await (await self._guests.of(sandbox)).init(env=told)

        await self._broker.inform(sandbox, tell)


class Environment:
    """What is set takes effect for every later command, and after every later start (K10)."""

    def __init__(self, changes: Changes, guests: Guests) -> None:
        self._changes = changes
        self._guests = guests

    async def put(self, principal: Principal, name: str, env: Mapping[str, str]) -> SandboxRecord:
        """Added to what the sandbox has. Values are never shown again."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.living(principal.team_id, name)

        def added(current: SandboxRecord) -> SandboxRecord:
            check_open(current.quarantine, current.name, principal)
            return replace(alive(current), env={**current.env, **env})

        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.apply(
                sandbox.id,
                added,
                principal,
                action="sandbox.env",
                detail={"names": sorted(env)},
            )
            if sandbox.state is SandboxState.RUNNING:
                await (await self._guests.of(sandbox)).init(env=env)
            return sandbox
