"""paddock.Files: nothing does more than the system call that it is named after."""

import stat

import pytest

from paddock.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from paddock.guest_client import Guest
from paddock.guest_client.posix import Opening
from tests.guest.raw import Raw, as_user

pytestmark = pytest.mark.timeout(60)

MAKE = Opening(write=True, create=True, cut=True)


@pytest.fixture
async def place(guest: Guest) -> str:
    await guest.exec(["sh", "-c", "rm -rf ~/posix && mkdir ~/posix"])
    return "/home/user/posix"


async def test_a_file_is_written_piece_by_piece_in_any_order(guest: Guest, place: str) -> None:
    name = f"{place}/file"
    made = await guest.posix.open(name, "", MAKE)
    assert (stat.S_IMODE(made.mode), made.size, made.owner) == (0o644, 0, "user")
    await guest.posix.write_at(name, "", b"world", 6)
    await guest.posix.write_at(name, "", b"hello ", 0)
    await guest.posix.write_at(name, "", b"!", 0, append=True)
    assert await guest.files.read(name) == b"hello world!"
    await guest.posix.set(name, "", {"size": 5})
    assert await guest.files.read(name) == b"hello"
    with pytest.raises(NotFound):
        await guest.posix.write_at(f"{place}/none", "", b"x", 0)


async def test_opening_does_what_its_flags_say(guest: Guest, place: str) -> None:
    name = f"{place}/file"
    with pytest.raises(NotFound):
        await guest.posix.open(name, "", Opening(write=True))
    await guest.posix.open(name, "", Opening(write=True, create=True, exclusive=True, mode=0o600))
    with pytest.raises(Conflict):
        await guest.posix.open(name, "", Opening(write=True, create=True, exclusive=True))
    await guest.posix.write_at(name, "", b"data", 0)
    assert (await guest.posix.open(name, "", Opening(write=True, create=True))).size == 4
    assert (await guest.posix.open(name, "", MAKE)).size == 0
    assert stat.S_IMODE((await guest.posix.stat(name, "")).mode) == 0o600
    with pytest.raises(InvalidRequest):
        await guest.posix.open(place, "", Opening(read=True))


async def test_attributes_are_set_and_seen(guest: Guest, place: str) -> None:
    name = f"{place}/file"
    await guest.posix.open(name, "", MAKE)
    await guest.posix.set(name, "", {"mode": 0o4750, "atime": 5, "mtime": 1_000_000_000})
    seen = await guest.posix.stat(name, "")
    assert (stat.S_IMODE(seen.mode), seen.atime, seen.mtime) == (0o4750, 5, 1_000_000_000)
    await guest.posix.set(name, "root", {"uid": 0, "gid": 0})
    seen = await guest.posix.stat(name, "")
    assert (seen.uid, seen.gid, seen.owner, seen.group) == (0, 0, "root", "root")


async def test_links_are_seen_as_links_or_followed(guest: Guest, place: str) -> None:
    await guest.posix.open(f"{place}/file", "", MAKE)
    await guest.posix.link(f"{place}/soft", "", "file", hard=False)
    await guest.posix.link(f"{place}/hard", "", f"{place}/file", hard=True)
    assert await guest.posix.read_link(f"{place}/soft", "") == "file"
    assert stat.S_ISLNK((await guest.posix.stat(f"{place}/soft", "", follow=False)).mode)
    assert stat.S_ISREG((await guest.posix.stat(f"{place}/soft", "")).mode)
    assert (await guest.posix.stat(f"{place}/hard", "")).links == 2
    assert await guest.posix.real_path(f"{place}/soft", "") == "/home/user/posix/file"
    assert await guest.posix.real_path(f"{place}/no/../such", "") == "/home/user/posix/such"
    assert await guest.posix.real_path(".", "") == "/home/user"
    with pytest.raises(InvalidRequest):
        await guest.posix.read_link(f"{place}/file", "")


async def test_nothing_takes_a_tree_with_it(guest: Guest, place: str) -> None:
    await guest.posix.make_directory(f"{place}/d", "", 0o700)
    await guest.posix.open(f"{place}/d/file", "", MAKE)
    with pytest.raises(Conflict):
        await guest.posix.make_directory(f"{place}/d", "")
    with pytest.raises(Conflict):
        await guest.posix.remove(f"{place}/d", "", directory=True)
    with pytest.raises((InvalidRequest, Forbidden)):
        await guest.posix.remove(f"{place}/d", "")
    await guest.posix.remove(f"{place}/d/file", "")
    await guest.posix.remove(f"{place}/d", "", directory=True)
    with pytest.raises(NotFound):
        await guest.posix.remove(f"{place}/d", "", directory=True)


async def test_a_rename_replaces_only_when_it_may(guest: Guest, place: str) -> None:
    for name in ("a", "b"):
        await guest.files.write(f"{place}/{name}", name.encode())
    with pytest.raises(Conflict):
        await guest.posix.rename(f"{place}/a", "", f"{place}/b", replace=False)
    assert await guest.files.read(f"{place}/b") == b"b"
    await guest.posix.rename(f"{place}/a", "", f"{place}/b", replace=True)
    assert await guest.files.read(f"{place}/b") == b"a"
    await guest.posix.rename(f"{place}/b", "", f"{place}/c", replace=False)
    assert [each.name async for each in guest.posix.scan(place, "")] == ["c"]


async def test_a_directory_of_any_size_and_names_of_any_bytes(guest: Guest, place: str) -> None:
    script = "cd ~/posix && seq 1 1500 | xargs touch && touch \"$(printf 'a\\377b')\""
    await guest.exec(["bash", "-c", script])
    found = {each.name async for each in guest.posix.scan(place, "")}
    assert len(found) == 1501
    assert "a\udcffb" in found
    await guest.posix.remove(f"{place}/a\udcffb", "")
    with pytest.raises(NotFound):
        _ = [each async for each in guest.posix.scan(f"{place}/none", "")]


async def test_what_is_not_a_file_is_not_written_to(guest: Guest, place: str) -> None:
    await guest.exec(["mkfifo", "/home/user/posix/pipe"])
    with pytest.raises(InvalidRequest):
        await guest.posix.write_at(f"{place}/pipe", "", b"x", 0)
    with pytest.raises(InvalidRequest):
        await guest.posix.write_at("/dev/null", "", b"x", 0)


async def test_the_guests_own_entry_of_proc_stays_closed(raw: Raw) -> None:
    for method in ("Stat", "Open", "RealPath", "Set"):
        for path in ("/proc/self/fd/0", "/proc/self/exe", "/proc/self/root/etc/shadow"):
            answer = await raw.rpc(
                f"paddock.Files/{method}",
                {"path": path, "read": True, "mode": 0o777},
                authorization=as_user("root"),
            )
            assert answer.status in (400, 403, 404), (method, path, answer.body)


async def test_there_is_room_to_be_asked_for(guest: Guest, place: str) -> None:
    room = await guest.posix.space(place, "")
    assert room["blocks"] >= room["bfree"] > 0
