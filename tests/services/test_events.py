"""Following the log of events: no gap, nothing twice, whatever happens meanwhile."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.store import open_store
from paddock.domain.event import Event, EventKind
from paddock.services.events import EventFeed, Interest
from tests.databases import new_database


def event(team: str, number: int) -> Event:
    return Event(team, EventKind.SANDBOX_CHANGED, f"sbx_{number % 3}", float(number))


@pytest.fixture(params=["exclusive", "shared", "postgres"])
async def store(request, tmp_path: Path):
    if request.param == "postgres":
        async with (
            new_database(request.getfixturevalue("postgres")) as place,
            open_store(place) as made,
        ):
            yield made
        return
    config = StoreConfig(exclusive=request.param == "exclusive")
    async with open_store(tmp_path / "e.db", config) as made:
        yield made


async def append(store, count: int, team: str = "tem_a", start: int = 0) -> None:
    for number in range(start, start + count):
        await store.write(lambda tx, n=number: tx.events.append([event(team, n)]))


async def take(feed: EventFeed, interest: Interest, after: int, count: int) -> list[Event]:
    found: list[Event] = []
    async with asyncio.timeout(20):
        async for each in feed.follow(interest, after):
            found.append(each)
            if len(found) == count:
                return found
    return found


async def test_followers_hear_the_past_and_the_future_exactly_once(store):
    await append(store, 30)
    async with EventFeed(store) as feed:
        everything = asyncio.create_task(take(feed, Interest("tem_a"), 0, 130))
        late = asyncio.create_task(take(feed, Interest("tem_a"), 25, 105))
        one = asyncio.create_task(take(feed, Interest("tem_a", "sbx_1"), 0, 43))
        other = asyncio.create_task(take(feed, Interest("tem_b"), 0, 1))
        await append(store, 100, start=30)
        await append(store, 1, team="tem_b")
        assert [int(each.at) for each in await everything] == list(range(130))
        assert [int(each.at) for each in await late] == list(range(25, 130))
        assert [int(each.at) for each in await one] == [n for n in range(130) if n % 3 == 1]
        assert len(await other) == 1


@pytest.mark.proves("U10")
async def test_a_follower_that_fell_behind_what_is_remembered_reads_the_rest(store):
    async with EventFeed(store, remembered=10, page=7) as feed:
        slow = feed.follow(Interest("tem_a"), 0)
        await append(store, 1)
        first = await anext(slow)
        await append(store, 60, start=1)
        rest = [first] + [await anext(slow) for _ in range(60)]
        assert [int(each.at) for each in rest] == list(range(61))
        rare = asyncio.create_task(take(feed, Interest("tem_rare"), 0, 2))
        await append(store, 30, start=61)
        await append(store, 2, team="tem_rare")
        assert len(await rare) == 2


@pytest.mark.proves("U6")
async def test_an_apps_events_are_found_page_by_page_each_once(store):
    """The app's are rare and lie across the pages that are read; the last page is whole."""
    apps = ["" if number % 7 else ("shop", "blog")[number % 2] for number in range(120)]
    told = [replace(event("tem_a", n), data={"app": app}) for n, app in enumerate(apps)]
    told.append(replace(event("tem_b", 999), data={"app": "shop"}))
    await store.write(lambda tx: tx.events.append(told))
    wanted, mine = Interest("tem_a", app="shop"), [n for n, app in enumerate(apps) if app == "shop"]
    async with EventFeed(store, remembered=10, page=5) as feed:
        for limit in (1, 2, 4, len(mine), 50):
            found: list[Event] = []
            while page := await feed.page(wanted, found[-1].seq if found else 0, limit):
                found += page
            assert [int(each.at) for each in found] == mine, limit
        # From memory and from the store, and what comes only now.
        following = asyncio.create_task(take(feed, wanted, 0, len(mine) + 1))
        await append(store, 20, start=200)
        late = replace(event("tem_a", 300), data={"app": "shop"})
        await store.write(lambda tx: tx.events.append([late]))
        assert [int(each.at) for each in await following] == [*mine, 300]


async def test_following_ends_with_the_feed(store):
    async with EventFeed(store) as feed:
        waiting = asyncio.create_task(take(feed, Interest(), 0, 1))
        await asyncio.sleep(0.05)
    assert await asyncio.wait_for(waiting, 5) == []
