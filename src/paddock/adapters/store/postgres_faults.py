"""What PostgreSQL says when it cannot, and what to do about it."""

import asyncpg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from paddock.adapters.store.faults import REPORT_IT, explain_common, first_line
from paddock.domain.errors import Broken, InvalidRequest, PaddockError, Unavailable

DRIVER = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
"""What may come out of a call; a refused connection and a timeout are both an OSError."""

_REPEATABLE = frozenset({"40001", "40P01"})
_LOST = ("08", "57P")
_Fault = tuple[type[PaddockError], str, str]
_CREDENTIALS: _Fault = (
    InvalidRequest,
    "the server does not let this user in",
    "check user, password and database in the URL, and pg_hba.conf on the server",
)
_CONNECTION: _Fault = (
    Unavailable,
    "the connection failed",
    "check that the server runs and can be reached, then try again",
)

# By code, or by the class that the first two characters are.
_FAULTS: dict[str, _Fault] = {
    "53100": (Unavailable, "the server's disk is full", "make room there, then try again"),
    "53300": (
        Unavailable,
        "the server has no connection left",
        "raise max_connections there, or lower `readers` here",
    ),
    "53": (Unavailable, "the server has run out of something", "look into its log"),
    "55P03": (
        Unavailable,
        "another process has been writing for too long",
        "try again; pg_stat_activity shows who holds the lock",
    ),
    "57014": (Unavailable, "a statement took too long", "try again; look at the server's load"),
    "57P": _CONNECTION,
    "58": (Unavailable, "the server's system failed", "look into its log"),
    "08": _CONNECTION,
    "40": (Unavailable, "transactions kept getting in each other's way", "try again"),
    "25006": (
        Broken,
        "it can only be read",
        "name the primary server; if it is, a transaction for reading has tried to write, "
        "which is a fault in Paddock",
    ),
    "28": _CREDENTIALS,
    "3D000": (
        InvalidRequest,
        "there is no such database",
        "create it (`createdb NAME`), or correct the URL",
    ),
    "42501": (
        InvalidRequest,
        "this user lacks rights",
        "let the user own the database, or GRANT ALL ON SCHEMA public",
    ),
    "XX": (
        Broken,
        "the server found its own data damaged, or failed inside",
        "look into its log; if data is damaged, restore a backup",
    ),
}


def explain(error: BaseException, place: str) -> PaddockError | None:
    known = explain_common(error, place)
    if known is not None:
        return known
    if not isinstance(error, DRIVER):
        return None
    state = "57014" if isinstance(error, TimeoutError) else _state(error)
    found = (_FAULTS[key] for key in (state, state[:3], state[:2]) if key in _FAULTS)
    kind, problem, remedy = next(found, (Broken, "it failed", REPORT_IT))
    if is_lost(error):
        kind, problem, remedy = _CONNECTION
    return kind(f"database {place}: {problem} ({first_line(error)})", remediation=remedy)


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, rather than a statement refused."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    raw = _raw(error)
    if isinstance(raw, TimeoutError):
        return False
    return isinstance(raw, OSError | asyncpg.InterfaceError) or _state(error).startswith(_LOST)


def is_repeatable(error: BaseException) -> bool:
    """Whether the server itself asks to do it again from the start."""
    return _state(error) in _REPEATABLE


def _raw(error: BaseException) -> BaseException:
    raw = error.orig if isinstance(error, DBAPIError) and error.orig else error
    return getattr(raw, "driver_exception", None) or raw


def _state(error: BaseException) -> str:
    return getattr(_raw(error), "sqlstate", None) or ""
