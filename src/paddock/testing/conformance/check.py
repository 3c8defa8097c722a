"""One check: what it says, when it applies, and what must be true where it does not."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType

from paddock.ports.provider import Capabilities, Isolation
from paddock.testing.conformance.expect import Nonconformity
from paddock.testing.conformance.subject import Subject

Body = Callable[[Subject], Awaitable[None]]
Applies = Callable[[Capabilities], bool]

_CLEANUP_S = 60.0


def always(_: Capabilities) -> bool:
    return True


def isolated(capabilities: Capabilities) -> bool:
    return capabilities.isolation is not Isolation.NONE


@dataclass(frozen=True, slots=True)
class Check:
    """A promise of the port, and how it is tried.

    Nothing is ever skipped: where the capability is not claimed, `otherwise` asks for the proper
    refusal instead.
    """

    name: str
    says: str
    body: Body
    proves: tuple[str, ...] = ()
    deadline_s: float = 60.0
    when: Applies = always
    otherwise: Body | None = None

    def chosen(self, capabilities: Capabilities) -> Body:
        return self.body if self.otherwise is None or self.when(capabilities) else self.otherwise

    async def run(self, subject: Subject) -> None:
        """Raise what is wrong; leave nothing behind, whatever happened."""
        try:
            await self._within_deadline(subject)
        except BaseException:
            # What went wrong first is what the report must show.
            with contextlib.suppress(Exception):
                await self._sweep(subject)
            raise
        await self._sweep(subject)

    async def _within_deadline(self, subject: Subject) -> None:
        deadline = self.deadline_s * subject.terms.patience
        try:
            async with asyncio.timeout(deadline) as scope:
                await self.chosen(subject.capabilities)(subject)
        except TimeoutError as late:
            if not scope.expired():
                raise
            raise Nonconformity(f"not done within {deadline:g} s") from late

    async def _sweep(self, subject: Subject) -> None:
        async with asyncio.timeout(_CLEANUP_S * subject.terms.patience):
            await subject.sweep()


def check(
    *,
    proves: tuple[str, ...] = (),
    deadline_s: float = 60.0,
    when: Applies = always,
    otherwise: Body | None = None,
) -> Callable[[Body], Check]:
    """Turn an async function into a check; its docstring is what people read in the report."""
    if (when is always) is not (otherwise is None):
        raise TypeError("a check that does not always apply says what holds otherwise")

    def make(body: Body) -> Check:
        name = getattr(body, "__name__", "")
        says = (body.__doc__ or "").strip().splitlines()[0]
        return Check(name, says, body, proves, deadline_s, when, otherwise)

    return make


def checks_of(module: ModuleType) -> tuple[Check, ...]:
    return tuple(value for value in vars(module).values() if isinstance(value, Check))
