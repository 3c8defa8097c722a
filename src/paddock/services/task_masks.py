"""What must not be kept of what a task's programs say: values that somebody has lent them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from paddock.domain.agent import PlacedFile
from paddock.domain.broker.masking import Mask, secret_values, strings_in
from paddock.domain.records import SandboxRecord
from paddock.domain.task import TaskRecord
from paddock.services.intake import Inside

_LOG_IN = "(log-in of the agent)"
Lend = Callable[[SandboxRecord, Mapping[str, str]], Awaitable[None]]
"""Has values known for as long as the sandbox is there."""


class Masks:
    """As it is when an agent or a check begins: what is lent later, they do not have."""

    def __init__(self, inside: Inside, lend: Lend) -> None:
        self._inside = inside
        self._lend = lend

    async def of(
        self, task: TaskRecord, sandbox: SandboxRecord, files: Sequence[PlacedFile] = ()
    ) -> Mask:
        """Values that are exposed to the sandbox, variables that are called like secrets, and what
        is in the files of a log-in."""
        values = secret_values(sandbox.env) | secret_values(task.wish.env)
        await self._lend(sandbox, values)  # they can be changed while it has those of before
        values |= {each: _LOG_IN for file in files for each in strings_in(file.data)}
        return Mask({**values, **await self._inside(sandbox)})
