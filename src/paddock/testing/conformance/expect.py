"""How a check says what it wanted and what it found; plain `assert` would vanish under `-O`."""

from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from paddock.domain.errors import PaddockError

T = TypeVar("T")

_SHOWN = 400


class Nonconformity(AssertionError):
    """The provider did not keep the contract."""


def expect(truth: object, what: str) -> None:
    if not truth:
        raise Nonconformity(what)


def same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Nonconformity(f"{what}: found {_short(found)}, wanted {_short(wanted)}")


async def refused(
    call: Awaitable[object], error: type[PaddockError] | tuple[type[PaddockError], ...], what: str
) -> PaddockError:
    """The call must raise this error, and tell a person something."""
    wanted = error if isinstance(error, tuple) else (error,)
    names = " or ".join(kind.__name__ for kind in wanted)
    try:
        result = await call
    except PaddockError as raised:
        expect(
            isinstance(raised, wanted),
            f"{what} raised {type(raised).__name__} ({raised.message}) instead of {names}",
        )
        expect(raised.message.strip(), f"{what} was refused without a message")
        return raised
    raise Nonconformity(f"{what} was not refused: it returned {_short(result)} instead of {names}")


async def listed(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
