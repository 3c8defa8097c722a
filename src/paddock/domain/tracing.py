"""Where in a trace the work of this moment is, for as long as somebody traces it.

Nothing is traced but what is done within a span that somebody began: a request. Elsewhere, and when
nothing traces at all, each of these functions is one look at a variable.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

TEAM, ACTOR, SANDBOX = "paddock.team.id", "paddock.actor", "paddock.sandbox.id"
PROVIDER = "paddock.provider"
Value = str | int


class Span(Protocol):
    """A part of a trace. Its attributes are ids and names of operations: never what a request, a
    command or a file holds."""

    @property
    def traceparent(self) -> str:
        """What the next process is told, in the form of W3C Trace Context."""
        ...

    def child(self, name: str, attributes: Mapping[str, Value], *, is_call: bool = False) -> "Span":
        """`is_call`: it is a call of another process."""
        ...

    def note(self, attributes: Mapping[str, Value]) -> None: ...

    def rename(self, name: str) -> None: ...

    def end(self, error: BaseException | None = None) -> None:
        """Of an error only its kind is told: messages name files and people."""
        ...


_current: ContextVar[Span | None] = ContextVar("span", default=None)
_NOTHING: AbstractContextManager[None] = nullcontext()


def span(name: str, **attributes: Value) -> AbstractContextManager[object]:
    """A part of what is traced now; what happens inside is part of it."""
    parent = _current.get()
    return _NOTHING if parent is None else within(parent.child(name, _named(attributes)))


def call(name: str) -> AbstractContextManager[Span | None]:
    """A call of another process: it has no parts here."""
    parent = _current.get()
    return _NOTHING if parent is None else _until_end(parent.child(name, {}, is_call=True))


def note(attribute: str, value: Value) -> None:
    """Something that was found out about the part that is traced now."""
    if (now := _current.get()) is not None:
        now.note({attribute: value})


@contextmanager
def within(began: Span) -> Iterator[Span]:
    token = _current.set(began)
    try:
        with _until_end(began):
            yield began
    finally:
        _current.reset(token)


@contextmanager
def _until_end(began: Span) -> Iterator[Span]:
    try:
        yield began
    except BaseException as error:
        began.end(error)
        raise
    began.end()


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {f"paddock.{name}": value for name, value in attributes.items()}
