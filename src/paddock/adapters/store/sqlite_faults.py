"""What SQLite says when it cannot, and what to do about it."""

import sqlite3

from sqlalchemy.exc import DBAPIError

from paddock.adapters.store.faults import REPORT_IT, explain_common, first_line
from paddock.domain.errors import (
    Broken,
    InvalidRequest,
    LimitExceeded,
    PaddockError,
    Unavailable,
)

# The first byte of a code is its family: an I/O error while syncing is still one.
_FAULTS: dict[int, tuple[type[PaddockError], str, str]] = {
    sqlite3.SQLITE_BUSY: (
        Unavailable,
        "another process has been writing for too long",
        "try again; if it stays so, find the process that has the file open",
    ),
    sqlite3.SQLITE_LOCKED: (Unavailable, "a table is locked", "try again"),
    sqlite3.SQLITE_FULL: (
        Unavailable,
        "the disk is full",
        "make room on the file system of the database, then try again",
    ),
    sqlite3.SQLITE_IOERR: (
        Unavailable,
        "the disk cannot be read or written",
        "look for the disk's errors in the kernel's log, and for room on it",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        Unavailable,
        "the file cannot be opened",
        "check that it and its directory exist, and that this user may write to both",
    ),
    sqlite3.SQLITE_NOMEM: (Unavailable, "there is no memory left", "free some, then try again"),
    sqlite3.SQLITE_CORRUPT: (
        Broken,
        "the file is damaged",
        "stop Paddock and restore a backup; without one, "
        "`sqlite3 FILE .recover | sqlite3 NEW` saves what can be read",
    ),
    sqlite3.SQLITE_NOTADB: (
        Broken,
        "the file is not an SQLite database, or its beginning is damaged",
        "name another file; if this one was Paddock's, restore a backup",
    ),
    sqlite3.SQLITE_READONLY: (
        Broken,
        "it is opened for reading only",
        "let this user write to the file and its directory; "
        "if they can, a transaction for reading has tried to write, which is a fault in Paddock",
    ),
    sqlite3.SQLITE_PERM: (InvalidRequest, "access is denied", "let this user write to the file"),
    sqlite3.SQLITE_TOOBIG: (LimitExceeded, "a value is too large", "store less in one piece"),
}


def explain(error: BaseException, place: str) -> PaddockError | None:
    known = explain_common(error, place)
    if known is not None:
        return known
    raw = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(raw, sqlite3.Error):
        return None
    code = getattr(raw, "sqlite_errorcode", 0) & 0xFF
    kind, problem, remedy = _FAULTS.get(code, (Broken, "it failed", REPORT_IT))
    return kind(f"database {place}: {problem} ({first_line(raw)})", remediation=remedy)
