"""Logs: one line per event to stderr, in the past tense, with key=value pairs."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

_log = logging.getLogger(__name__)

_bound: ContextVar[tuple[tuple[str, object], ...]] = ContextVar("bound", default=())
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class KeyValueFormatter(logging.Formatter):
    """`time level logger: event key=value`; whatever is in it, it stays one line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head = f"{moment}.{int(record.msecs):03}Z {record.levelname.lower()} {record.name}:"
        own = ((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        pairs = [f"{key}={_quoted(value)}" for key, value in (*own, *_bound.get())]
        line = " ".join([head, _escaped(record.getMessage()), *pairs])
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line = "\n    ".join([line, *(_escaped(part) for part in trace)])
        return line


@contextmanager
def bound(**values: object) -> Iterator[None]:
    """Every line logged inside carries these, such as the id of a request or a task."""
    token = _bound.set((*_bound.get(), *values.items()))
    try:
        yield
    finally:
        _bound.reset(token)


def within_request(identifier: str) -> AbstractContextManager[None]:
    return bound(request=identifier)


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Send Paddock's own log there; what was set up before is replaced."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logger = logging.getLogger("paddock")
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def observe_call(provider: str, operation: str, seconds: float, outcome: str) -> None:
    """The observer of provider calls, as long as nothing collects metrics."""
    details: dict[str, Any] = {"provider": provider, "operation": operation, "outcome": outcome}
    _log.debug("provider called", extra={**details, "milliseconds": round(seconds * 1000, 1)})


def observe_request(method: str, route: str, status: int, seconds: float) -> None:
    """Every request that the API has answered."""
    details: dict[str, Any] = {"method": method, "route": route, "status": status}
    _log.debug("request answered", extra={**details, "milliseconds": round(seconds * 1000, 1)})


def _quoted(value: object) -> str:
    text = _escaped(str(value))
    if text and " " not in text and '"' not in text and "=" not in text:
        return text
    return '"' + text.replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    """Nothing that was logged can begin a line of its own or talk to the terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
