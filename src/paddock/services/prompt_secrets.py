"""Variables of prompts that hold secrets: refused, and who tried is on record."""

from collections.abc import Mapping

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import InvalidRequest
from paddock.domain.prompt_template import check_no_secret
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.secrets import Secrets


class PromptSecrets:
    """Compares them with all that the team keeps secret, of whichever app."""

    def __init__(self, store: Store, clock: Clock, secrets: Secrets) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets

    async def check(self, principal: Principal, variables: Mapping[str, str]) -> None:
        """InvalidRequest. It tells that a guess was right, so that it goes to the audit log."""
        secrets = await self._secrets.sensitive(principal.team_id)
        try:
            check_no_secret(variables, {name for name, _ in secrets}, [each for _, each in secrets])
        except InvalidRequest as refused:
            team_id, actor, why = principal.team_id, principal.actor, refused.message
            now = self._clock.wall()
            entry = AuditEntry(team_id, actor, "task.refuse", "variables", now, {"why": why})
            await self._store.write(lambda tx: tx.audit.append([entry]))
            raise
