"""Which rules of its template a snapshot is taken by."""

import asyncio
import logging

from paddock.domain.errors import NotFound, PaddockError
from paddock.domain.records import SandboxRecord
from paddock.services.provider_templates import Kept
from paddock.services.providers import Providers

_log = logging.getLogger(__name__)


async def rules_of(providers: Providers, sandbox: SandboxRecord) -> tuple[str, ...]:
    """Those that the template has now. One that is gone or cannot be read has none: in doubt a
    snapshot holds everything."""
    kept = providers.templates.get(sandbox.provider)
    if not sandbox.template or not isinstance(kept, Kept):
        return ()
    try:
        return (await asyncio.to_thread(kept.recipes.recipe, sandbox.template)).snapshot_ignore
    except NotFound:
        return ()
    except PaddockError as error:
        details = {"template": sandbox.template, "error": error.message}
        _log.warning("rules of a template not read", extra=details)
        return ()
