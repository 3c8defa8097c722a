"""What a transaction promises, on both databases: whole or not at all, together but apart."""

import asyncio
import logging
import threading
from contextlib import contextmanager

import pytest

from paddock.adapters.store.config import StoreConfig
from paddock.adapters.store.store import open_store
from paddock.domain.errors import Broken, Conflict, InvalidRequest, Unavailable
from tests.adapters.store.elsewhere import write_elsewhere
from tests.adapters.store.samples import event, sandbox

NOBODY = type("Team", (), {"id": "tem_nobody"})


def put(name, value=1):
    return lambda tx: tx.values.put(name, value)


async def values(store):
    return await store.read(lambda tx: dict(tx.values.all("")))


@contextmanager
def busy(store):
    """The writer is in the middle of a work until this ends: what is submitted comes together."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(_):
        begun.set()
        assert go_on.wait(30)

    waiting = asyncio.ensure_future(store.write(wait))

    async def until_begun():
        await asyncio.to_thread(begun.wait, 30)
        return waiting

    try:
        yield until_begun
    finally:
        go_on.set()


async def test_a_write_returns_what_the_work_returned_once_it_can_be_seen(store):
    assert await store.write(lambda tx: tx.values.put("x", 5) or "done") == "done"
    assert await store.read(lambda tx: tx.values.get("x")) == 5


async def test_a_work_that_raises_has_done_nothing(store):
    def work(tx):
        tx.values.put("x", 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.write(work)
    assert await values(store) == {}


async def test_one_that_fails_in_a_batch_fails_alone(store):
    def fail(tx):
        tx.values.put("bad", 1)
        tx.events.append([event()])
        raise InvalidRequest("no")

    def offend(tx):
        tx.values.put("bad", 2)
        tx.sandboxes.add(sandbox(NOBODY))

    works = [put("a"), fail, put("b"), offend, put("c", "\0"), put("\0"), put("d")]
    heard = []
    store.on_events(heard.append)
    with busy(store) as until_begun:
        waiting = await until_begun()
        together = [asyncio.ensure_future(store.write(work)) for work in works]
        await asyncio.sleep(0.05)
    results = await asyncio.gather(waiting, *together, return_exceptions=True)
    kinds = [type(result) for result in results[1:]]
    nothing = type(None)
    assert kinds == [
        *(nothing, InvalidRequest, nothing, Conflict, nothing, InvalidRequest, nothing),
    ]
    assert await values(store) == {"a": 1, "b": 1, "c": "\0", "d": 1}
    assert heard == []


async def test_what_is_read_is_of_one_moment(store, place):
    def work(tx):
        before = tx.values.get("x")
        write_elsewhere(place, put("x", 2))
        return before, tx.values.get("x")

    await store.write(put("x", 1))
    assert await store.read(work) == (1, 1)
    assert await store.read(lambda tx: tx.values.get("x")) == 2


async def test_what_was_read_is_still_so_when_it_is_written(store, place):
    """100 increments by two stores: none is lost."""
    await store.write(put("n", 0))

    def increment(tx):
        tx.values.put("n", tx.values.get("n") + 1)

    async with open_store(place) as other:
        await asyncio.gather(*(one.write(increment) for _ in range(50) for one in (store, other)))
    assert await values(store) == {"n": 100}


async def test_a_read_cannot_write(store):
    with pytest.raises(Broken, match="for reading"):
        await store.read(put("x"))
    await store.write(put("y"))
    assert await values(store) == {"y": 1}


async def test_events_are_heard_in_order_once_committed_and_before_the_writer_is_told(store):
    heard = []
    store.on_events(heard.append)
    (first,) = await store.write(lambda tx: tx.events.append([event()]))
    assert heard == [(first,)]
    await store.write(put("x"))

    def twice(tx):
        return [*tx.events.append([event()]), *tx.events.append([event(), event()])]

    results = await asyncio.gather(*(store.write(twice) for _ in range(20)))
    assert [one.seq for events in heard for one in events] == list(range(1, 62))
    assert heard[1:] == [tuple(result) for result in results]


async def test_a_listener_that_fails_keeps_nobody_from_hearing(store, caplog):
    def fail(_):
        raise ZeroDivisionError

    heard = []
    store.on_events(fail)
    store.on_events(heard.append)
    with caplog.at_level(logging.CRITICAL, "paddock.adapters.store.writer"):
        await store.write(lambda tx: tx.events.append([event()]))
    assert len(heard) == 1


async def test_who_gives_up_before_their_turn_is_left_out(store):
    with busy(store) as until_begun:
        await until_begun()
        given_up = asyncio.ensure_future(store.write(put("given up")))
        kept = asyncio.ensure_future(store.write(put("kept")))
        await asyncio.sleep(0.05)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
    await kept
    assert await values(store) == {"kept": 1}


async def test_what_was_begun_is_done_even_if_nobody_waits_any_more(store):
    begun, go_on = threading.Event(), threading.Event()

    def work(tx):
        begun.set()
        assert go_on.wait(30)
        tx.values.put("x", 1)

    waiting = asyncio.ensure_future(store.write(work))
    await asyncio.to_thread(begun.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await store.write(put("y"))
    assert await values(store) == {"x": 1, "y": 1}


async def test_closing_waits_for_what_was_submitted(place):
    async with open_store(place) as store:
        pending = [asyncio.ensure_future(store.write(put(f"{n}"))) for n in range(500)]
        await asyncio.sleep(0)
    await asyncio.gather(*pending)
    with pytest.raises(Unavailable, match="the store is closed"):
        await store.write(put("late"))
    with pytest.raises(Unavailable, match="the store is closed"):
        await store.ping()
    await store.aclose()
    async with open_store(place) as store:
        assert len(await values(store)) == 500


async def test_too_many_that_wait_are_refused(place):
    async with open_store(place, StoreConfig(queue=5, batch=2)) as store:
        with busy(store) as until_begun:
            await until_begun()
            waiting = [asyncio.ensure_future(store.write(put(f"{n}"))) for n in range(5)]
            await asyncio.sleep(0.05)
            with pytest.raises(Unavailable, match="5 writes wait") as refused:
                await store.write(put("one more"))
        assert refused.value.retryable
        await asyncio.gather(*waiting)
        await store.write(put("later"))
        assert len(await values(store)) == 6


async def test_works_of_another_event_loop_are_done_and_heard_at_home(store):
    heard = []
    store.on_events(heard.append)

    async def write():
        return await store.write(lambda tx: tx.events.append([event()]))

    (done,) = await asyncio.to_thread(asyncio.run, write())
    await asyncio.sleep(0)
    assert heard == [(done,)]


async def test_the_writer_outlives_whatever_a_work_raises(store):
    def leave(_):
        raise SystemExit

    with pytest.raises(Broken, match="SystemExit"):
        await store.write(leave)
    await store.write(put("x"))
    assert await values(store) == {"x": 1}
