"""Events kept on disk until the server has them: each told once, however often either side dies."""

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from paddock.domain.errors import InvalidRequest, LimitExceeded, PaddockError, Unavailable
from paddock.domain.event import check_custom_kind
from paddock.domain.ids import new_ulid
from paddock.domain.intake import LARGEST_DATA, check_source
from paddock.interfaces.client.server import Server, segment

_log = logging.getLogger(__name__)
_BATCH = 500
_BATCH_BYTES = 4 << 20
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 15.0
_CLOSING_S = 10.0
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS waiting (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL
);
"""


class _File:
    """The events that wait, in order. Several processes may have it open."""

    def __init__(self, path: Path, sandbox: str, name: str) -> None:
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, timeout=30, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        # What was recorded is there after a power cut, too.
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_TABLES)
        # A new file counts from 1 again, so it must not go by the name of one that was lost.
        self.source = self._about("source", check_source(f"{name}:{new_ulid()}"))
        kept = self._about("sandbox", sandbox)
        if kept != sandbox:
            raise InvalidRequest(
                f"{path} has events of sandbox {kept}, not of {sandbox}",
                remediation="use one file for each sandbox",
            )

    def _about(self, name: str, value: str) -> str:
        with self._database as database:
            database.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, value))
            row = database.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return str(row[0])

    def append(self, kind: str, data: str) -> int:
        with self._lock, self._database as database:
            done = database.execute(
                "INSERT INTO waiting (kind, at, data) VALUES (?, ?, ?)", (kind, time.time(), data)
            )
            assert done.lastrowid is not None
            return done.lastrowid

    def first(self) -> list[dict[str, Any]]:
        """The oldest that wait, as many as go into one request."""
        query = "SELECT seq, kind, at, data FROM waiting ORDER BY seq LIMIT ?"
        batch: list[dict[str, Any]] = []
        size = 0
        with self._lock:
            rows = self._database.execute(query, (_BATCH,)).fetchall()
        for seq, kind, at, data in rows:
            size += len(data)
            if batch and size > _BATCH_BYTES:
                break
            told = {"source": self.source, "seq": seq, "kind": kind, "at": at}
            batch.append({**told, "data": json.loads(data)})
        return batch

    def forget(self, upto: int) -> None:
        with self._lock, self._database as database:
            database.execute("DELETE FROM waiting WHERE seq <= ?", (upto,))

    def count(self) -> int:
        with self._lock:
            return int(self._database.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def close(self) -> None:
        with self._lock:
            self._database.close()


class AsyncSpool:
    """Events of one program about one sandbox. What is recorded is on disk, and goes to the server
    by itself as soon as that is there; the next one who opens the same file goes on with it."""

    def __init__(self, file: _File, sandbox: str, server: Server) -> None:
        self._file = file
        self._path = f"/v1/sandboxes/{segment(sandbox)}/events"
        self._server = server
        self._news = asyncio.Event()
        self._sending = asyncio.Lock()
        self._sender = asyncio.create_task(self._send_on(), name=f"spool {file.source}")

    @classmethod
    async def open(
        cls, path: str | Path, sandbox: str, *, name: str = "program", server: Server | None = None
    ) -> Self:
        """The file is made unless it is there. The sandbox is named by its id."""
        file = await asyncio.to_thread(_File, Path(path), sandbox, name)
        return cls(file, sandbox, server or Server())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def source(self) -> str:
        """What the events go by in the log, with their numbers."""
        return self._file.source

    async def record(self, kind: str, data: Mapping[str, Any] | None = None) -> int:
        """Its number. It is on disk when this returns; kinds are `custom.…`."""
        text = json.dumps(data or {})
        if len(text) > LARGEST_DATA:
            raise InvalidRequest(
                f"the data of this event has {len(text)} bytes",
                remediation=f"record at most {LARGEST_DATA}; keep large content in files",
            )
        seq = await asyncio.to_thread(self._file.append, check_custom_kind(kind), text)
        self._news.set()
        return seq

    async def waiting(self) -> int:
        """How many the server has not acknowledged yet."""
        return await asyncio.to_thread(self._file.count)

    async def flush(self) -> None:
        """Return when the server has all of them; raises what keeps it from taking them."""
        async with self._sending:
            while batch := await asyncio.to_thread(self._file.first):
                await self._server.call("POST", self._path, json=batch, repeatable=True)
                # Only now: whoever dies before this sends them again, and they are kept once.
                await asyncio.to_thread(self._file.forget, batch[-1]["seq"])

    async def aclose(self) -> None:
        """Send what can be sent within seconds; the rest stays on disk."""
        self._sender.cancel()
        with suppress(asyncio.CancelledError):
            await self._sender
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self.flush()
        except (PaddockError, TimeoutError) as error:
            _log.warning("events stay on disk", extra={"error": str(error)})
        finally:
            await asyncio.to_thread(self._file.close)

    async def _send_on(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            self._news.clear()
            try:
                await self.flush()
            except (Unavailable, LimitExceeded) as error:
                await asyncio.sleep(max(pause_s, error.retry_after_s or 0.0))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            except PaddockError as error:
                # Refused for good: `flush` tells whoever asks, and asking again would not help.
                _log.warning("events are not taken", extra={"error": str(error)})
                return
            else:
                pause_s = _FIRST_PAUSE_S
                await self._news.wait()
