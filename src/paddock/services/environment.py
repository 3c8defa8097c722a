"""The environment of a sandbox's commands, set while it runs."""

from collections.abc import Mapping
from dataclasses import replace

from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.services.changes import Changes
from paddock.services.guests import Guests


class Environment:
    """What is set takes effect for every later command, and after every later start (K10)."""

    def __init__(self, changes: Changes, guests: Guests) -> None:
        self._changes = changes
        self._guests = guests

    async def put(self, principal: Principal, name: str, env: Mapping[str, str]) -> SandboxRecord:
        """Added to what the sandbox has. Values are never shown again."""
        principal.require(Scope.SANDBOXES_WRITE)
        sandbox = await self._changes.find(principal.team_id, name)
        async with self._changes.alone(sandbox.id):
            sandbox = await self._changes.apply(
                sandbox.id,
                lambda current: replace(current, env={**current.env, **env}),
                principal,
                action="sandbox.env",
                detail={"names": sorted(env)},
            )
            if sandbox.state is SandboxState.RUNNING:
                await (await self._guests.of(sandbox)).init(env=env)
            return sandbox
