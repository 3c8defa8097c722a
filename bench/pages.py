"""Pages of a long event log and of many sandboxes, from the store and through the HTTP API."""

import contextlib
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import rows
from bench.measurements import Stage, measures
from bench.server import server
from paddock.adapters.store.store import open_store
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.lifetime import Clockwork
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Team
from paddock.ports.clock import SystemClock
from paddock.ports.store import Page, SandboxFilter
from paddock.services.access import Access
from paddock.services.once import Once
from paddock.services.system import operating_team
from paddock.wiring.keys import keep, open_vault
from paddock.wiring.server import TOKEN_FILE

_EVENTS = 1_000_000
_SANDBOXES = 500


@measures(
    f"page of 100 events, at the end of {_EVENTS:,}",
    f"{_SANDBOXES} sandboxes read as one page",
)
async def of_the_store(_: None) -> list[rows.Row]:
    """How reading grows with what there is: pages at both ends of a long log, and a full list."""
    home = Path(tempfile.mkdtemp(prefix="paddock-bench-store-", dir="/var/tmp"))
    try:
        async with open_store(home / "paddock.db") as store:
            team = Team(new_id("tem"), "bench", 0.0)
            await store.write(lambda tx: tx.teams.add(team))
            await _tell(store, team, _EVENTS)

            async def page(after: int) -> float:
                return await rows.timed(
                    lambda: store.read(lambda tx: tx.events.after(after, 100, team_id=team.id))
                )

            first = await rows.median(50, lambda n: page(n * 100))
            last = await rows.median(50, lambda n: page(_EVENTS - 200 - n * 100))
            await _fill(store, team, _SANDBOXES)
            wanted, whole = SandboxFilter(), Page(limit=_SANDBOXES)
            listed_ms = await rows.median(
                20,
                lambda _: rows.timed(
                    lambda: store.read(lambda tx: tx.sandboxes.list(team.id, wanted, whole))
                ),
            )
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return [
        replace(rows.at_most(last, 5, "ms"), baseline=first, ratio=last / first),
        rows.at_most(listed_ms, 100, "ms"),
    ]


@measures(
    f"page of 100 events by HTTP, at the end of {_EVENTS:,}",
    f"{_SANDBOXES} sandboxes as one page by HTTP",
)
async def by_http(_: None) -> list[rows.Row]:
    """The same through the HTTP API of a server whose database has them before it starts."""
    async with server(0, before=_lay_in) as (api, _data):

        async def read(after: int) -> None:
            told = await api.call("GET", f"/v1/events?cursor={after}&limit=100")
            assert len(told["items"]) == 100

        async def page(after: int) -> float:
            return await rows.timed(lambda: read(after))

        async def whole() -> None:
            listed = await api.call("GET", f"/v1/sandboxes?limit={_SANDBOXES}")
            assert len(listed["items"]) == _SANDBOXES

        first = await rows.median(50, lambda n: page(n * 100))
        last = await rows.median(50, lambda n: page(_EVENTS - 200 - n * 100))
        listed_ms = await rows.median(20, lambda _: rows.timed(whole))
    return [
        replace(rows.at_most(last, 5, "ms"), baseline=first, ratio=last / first),
        rows.at_most(listed_ms, 100, "ms"),
    ]


async def _lay_in(data: Path) -> None:
    """Of the database alone: nobody has made these."""
    data.mkdir(mode=0o700, parents=True)
    async with open_store(data / "paddock.db") as store:
        clock = SystemClock()
        access = Access(store, clock, Once(store, clock, open_vault(data)))
        await access.begin(lambda token: keep(data / TOKEN_FILE, token))
        team = await store.read(operating_team)
        assert team is not None
        await _tell(store, team, _EVENTS)
        # Not as running: the server would find out that they are not.
        await _fill(store, team, _SANDBOXES, SandboxState.FAILED)


async def _tell(store: Any, team: Team, count: int) -> None:
    now = time.time()  # what is old is forgotten
    batch = [
        Event(team.id, EventKind.SANDBOX_CHANGED, f"sbx_{n % 100}", now, {"n": n})
        for n in range(10_000)
    ]
    for _ in range(count // len(batch)):
        await store.write(lambda tx: tx.events.append(batch))


async def _fill(
    store: Any, team: Team, count: int, state: SandboxState = SandboxState.RUNNING
) -> None:
    now = time.time()
    records = [
        SandboxRecord(
            id=new_id("sbx"),
            team_id=team.id,
            name=f"box-{number}",
            state=state,
            provider="local",
            created_at=now,
            changed_at=now,
            clock=Clockwork(active_at=now),
            template="base",
            labels={"n": str(number)},
        )
        for number in range(count)
    ]

    def add(tx: Any) -> None:
        for record in records:
            tx.sandboxes.add(record)

    await store.write(add)


STAGES = (Stage("a long event log", contextlib.nullcontext, (of_the_store, by_http)),)
