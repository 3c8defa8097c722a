"""Watching directories, as a stream and by polling."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from paddock.domain.errors import InvalidRequest, NotFound
from paddock.guest_client import Guest
from paddock.guest_client.files import Change, FileEvent
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(30)

FS = "filesystem.Filesystem"


class Watched:
    """A polled watcher and what it saw."""

    def __init__(self, raw: Raw, identifier: str) -> None:
        self._raw = raw
        self.identifier = identifier

    async def events(self) -> list[tuple[str, str]]:
        answer = await self._raw.rpc(f"{FS}/GetWatcherEvents", {"watcherId": self.identifier})
        assert answer.status == 200
        return [(e["name"], e["type"].removeprefix("EVENT_TYPE_")) for e in answer.json()["events"]]


async def _watch(raw: Raw, path: str, **options: Any) -> Watched:
    answer = await raw.rpc(f"{FS}/CreateWatcher", {"path": path, **options})
    assert answer.status == 200, answer.body
    return Watched(raw, answer.json()["watcherId"])


async def test_uploading_a_new_file_makes_exactly_three_events(guest: Guest, raw: Raw) -> None:
    await guest.files.make_dir("w1")
    watched = await _watch(raw, "w1")
    await guest.files.write("w1/new", b"x" * 500_000)
    assert await watched.events() == [("new", "CREATE"), ("new", "CHMOD"), ("new", "WRITE")]
    assert await watched.events() == []


async def test_each_kind_of_change_has_its_event(guest: Guest, raw: Raw) -> None:
    await guest.exec(["sh", "-c", "mkdir w2 w2-out; echo a > w2/a; echo b > w2/b"])
    watched = await _watch(raw, "w2")
    for script, expected in (
        ("echo more >> w2/a", [("a", "WRITE")]),
        ("chmod 600 w2/a", [("a", "CHMOD")]),
        ("mv w2/a w2/c", [("a", "RENAME"), ("c", "CREATE")]),
        ("mv w2/c w2-out/c", [("c", "RENAME")]),
        ("mv w2-out/c w2/back", [("back", "CREATE")]),
        ("rm w2/back", [("back", "REMOVE")]),
        ("mkdir w2/dir", [("dir", "CREATE")]),
        ("rmdir w2/dir", [("dir", "REMOVE")]),
    ):
        await guest.exec(["sh", "-c", script])
        assert await watched.events() == expected, script


async def test_only_a_recursive_watch_sees_what_is_below(guest: Guest, raw: Raw) -> None:
    await guest.exec(["mkdir", "-p", "w3/sub"])
    flat, deep = await _watch(raw, "w3"), await _watch(raw, "w3", recursive=True)
    await guest.exec(["touch", "w3/sub/file"])
    assert await flat.events() == []
    # touch opens, which changes nothing, and sets the times.
    assert ("sub/file", "CREATE") in await deep.events()


async def test_a_recursive_watch_follows_new_and_moved_directories(guest: Guest, raw: Raw) -> None:
    await guest.exec(["mkdir", "-p", "w4/old", "w4-outside/inner"])
    watched = await _watch(raw, "w4", recursive=True)
    await guest.exec(["sh", "-c", "mkdir -p w4/x/y/z; echo 1 > w4/x/y/z/deep"])
    seen = await watched.events()
    for name in ("x", "x/y", "x/y/z", "x/y/z/deep"):
        assert seen.count((name, "CREATE")) == 1, seen
    await guest.exec(["sh", "-c", "echo 2 > w4/x/y/z/later"])
    assert ("x/y/z/later", "CREATE") in await watched.events()
    await guest.exec(["sh", "-c", "mv w4/x w4/renamed; echo 3 > w4/renamed/y/new"])
    seen = await watched.events()
    assert ("renamed/y/new", "CREATE") in seen
    assert not [name for name, _ in seen if name.startswith("x/")]
    await guest.exec(["sh", "-c", "mv w4/renamed w4-away; echo 4 > w4-away/y/unseen"])
    assert await watched.events() == [("renamed", "RENAME")]
    await guest.exec(["sh", "-c", "mv w4-outside w4/came; echo 5 > w4/came/inner/file"])
    assert ("came/inner/file", "CREATE") in await watched.events()


async def test_a_burst_of_directories_loses_nothing(guest: Guest, raw: Raw) -> None:
    await guest.files.make_dir("w5")
    watched = await _watch(raw, "w5", recursive=True)
    script = "for i in $(seq 1 60); do mkdir -p w5/$i/a/b; touch w5/$i/a/b/f; done"
    await guest.exec(["sh", "-c", script])
    seen = await watched.events()
    for n in range(1, 61):
        assert seen.count((f"{n}/a/b/f", "CREATE")) == 1, n


async def test_an_event_carries_its_entry_when_asked_to(guest: Guest, raw: Raw) -> None:
    await guest.files.make_dir("w6")
    watched = await _watch(raw, "w6", includeEntry=True)
    await guest.files.write("w6/f", b"123")
    answer = await raw.rpc(f"{FS}/GetWatcherEvents", {"watcherId": watched.identifier})
    events = answer.json()["events"]
    assert [event["entry"]["path"] for event in events] == ["/home/user/w6/f"] * 3
    await guest.files.remove("w6/f")
    answer = await raw.rpc(f"{FS}/GetWatcherEvents", {"watcherId": watched.identifier})
    assert "entry" not in answer.json()["events"][0]


async def test_a_removed_watcher_is_not_found(guest: Guest, raw: Raw) -> None:
    await guest.files.make_dir("w7")
    watched = await _watch(raw, "w7")
    message = {"watcherId": watched.identifier}
    assert (await raw.rpc(f"{FS}/RemoveWatcher", message)).json() == {}
    for method in ("RemoveWatcher", "GetWatcherEvents"):
        assert (await raw.rpc(f"{FS}/{method}", message)).status == 404


async def test_what_cannot_be_watched_says_why(guest: Guest, raw: Raw) -> None:
    assert (await raw.rpc(f"{FS}/CreateWatcher", {"path": "/no/such"})).status == 404
    assert (await raw.rpc(f"{FS}/CreateWatcher", {"path": "/etc/passwd"})).status == 400
    with pytest.raises(NotFound):
        async for _ in guest.files.watch("/no/such"):
            pass
    with pytest.raises(InvalidRequest):
        async for _ in guest.files.watch("/etc/passwd"):
            pass


async def test_a_stream_starts_with_start_and_tells_events_as_they_happen(
    guest: Guest, raw: Raw
) -> None:
    await guest.files.make_dir("w8")
    async with raw.stream(f"{FS}/WatchDir", {"path": "w8"}, keepalive_ping_interval="1") as stream:
        assert (await stream.next())[1] == {"start": {}}
        await guest.files.write("w8/f", b"1")
        kinds = [(await stream.next())[1]["filesystem"]["type"] for _ in range(3)]
        assert kinds == ["EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"]
        assert (await stream.next())[1] == {"keepalive": {}}


async def test_the_timeout_of_a_watch_ends_only_the_stream(raw: Raw) -> None:
    async with raw.stream(f"{FS}/WatchDir", {"path": "/tmp"}, connect_timeout_ms="300") as stream:
        frames = await stream.all()
    assert frames[-1][1]["error"]["code"] == "deadline_exceeded"


async def test_the_client_watches(guest: Guest) -> None:
    await guest.files.make_dir("w9")
    seen: list[FileEvent] = []

    async def follow() -> None:
        async with aclosing(guest.files.watch("w9", recursive=True)) as events:
            async for event in events:
                seen.append(event)
                if event == FileEvent("d/f", Change.CREATE):
                    return

    task = asyncio.create_task(follow())
    async with asyncio.timeout(10):
        while not seen:
            await guest.exec(["touch", "w9/probe"])
        await guest.exec(["sh", "-c", "mkdir w9/d; touch w9/d/f"])
        await task
    rest = [event for event in seen if event.name != "probe"]
    assert rest[0] == FileEvent("d", Change.CREATE)


async def test_deleting_the_watched_directory_is_told(guest: Guest, raw: Raw) -> None:
    await guest.files.make_dir("w10")
    watched = await _watch(raw, "w10")
    await guest.files.remove("w10")
    assert (".", "REMOVE") in await watched.events()


async def test_more_events_than_can_be_kept_are_an_error_and_not_a_hole(
    guest: Guest, raw: Raw
) -> None:
    await guest.files.make_dir("/dev/shm/w11")
    watched = await _watch(raw, "/dev/shm/w11")
    await guest.exec(
        ["sh", "-c", "cd /dev/shm/w11; for i in 1 2 3; do seq 1 9000 | xargs touch; done"]
    )
    answer = await raw.rpc(f"{FS}/GetWatcherEvents", {"watcherId": watched.identifier})
    assert answer.json()["code"] == "resource_exhausted"
