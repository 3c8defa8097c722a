"""The code interpreter's sandboxes as the SDKs have them, for tests that do not wait for ever."""

import re
from typing import Any

from e2b_code_interpreter import AsyncSandbox, Sandbox

_CELL_S = 30


class Patient(Sandbox):
    """The SDK's own, but no test waits five minutes for what hangs."""

    def run_code(self, *words: Any, **options: Any) -> Any:
        return super().run_code(*words, **{"timeout": _CELL_S, **options})


class AsyncPatient(AsyncSandbox):
    """The asynchronous one."""

    async def run_code(self, *words: Any, **options: Any) -> Any:
        return await super().run_code(*words, **{"timeout": _CELL_S, **options})


def plain(traceback: str) -> str:
    """Without the colours that IPython gives it."""
    return re.sub(r"\x1b\[[\d;]*m", "", traceback)
