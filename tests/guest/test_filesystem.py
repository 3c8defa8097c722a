"""filesystem.Filesystem as E2B's SDKs speak it."""

import re

import pytest

from paddock.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from paddock.guest_client import Guest
from paddock.guest_client.files import FileKind
from tests.guest.forms import GuestForm
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(30)

FS = "filesystem.Filesystem"


async def test_an_entry_has_every_field_in_envds_form(raw: Raw, guest: Guest) -> None:
    await guest.files.write("entry/file.txt", b"12345")
    answer = await raw.rpc(f"{FS}/Stat", {"path": "entry/file.txt"})
    entry = answer.json()["entry"]
    assert answer.headers["content-type"] == "application/json"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", entry.pop("modifiedTime"))
    assert entry == {
        "name": "file.txt",
        "type": "FILE_TYPE_FILE",
        "path": "/home/user/entry/file.txt",
        "size": "5",
        "mode": 0o644,
        "permissions": "-rw-r--r--",
        "owner": "user",
        "group": "user",
    }
    directory = (await raw.rpc(f"{FS}/Stat", {"path": "/home/user/entry/"})).json()["entry"]
    assert (directory["type"], directory["permissions"]) == ("FILE_TYPE_DIRECTORY", "drwxr-xr-x")
    assert directory["path"] == "/home/user/entry"


async def test_the_root_directory_has_an_entry(guest: Guest) -> None:
    entry = await guest.files.stat("/")
    assert (entry.path, entry.kind) == ("/", FileKind.DIRECTORY)


async def test_a_link_is_described_by_what_it_leads_to(raw: Raw, guest: Guest) -> None:
    await guest.files.write("links/real", b"1234")
    for target, link in (
        ("real", "soft"),
        ("soft", "twice"),
        ("nowhere", "dangling"),
        (".", "dir"),
    ):
        await guest.exec(["ln", "-sfn", target, f"links/{link}"])
    for name in ("soft", "twice"):
        entry = (await raw.rpc(f"{FS}/Stat", {"path": f"links/{name}"})).json()["entry"]
        assert (entry["type"], entry["size"], entry["isSymlink"]) == ("FILE_TYPE_FILE", "4", True)
        assert entry["symlinkTarget"] == "/home/user/links/real"
        assert entry["permissions"] == "-rw-r--r--"
    entry = (await raw.rpc(f"{FS}/Stat", {"path": "links/dangling"})).json()["entry"]
    assert (entry["type"], entry["symlinkTarget"]) == (
        "FILE_TYPE_SYMLINK",
        "/home/user/links/nowhere",
    )
    listed = await guest.files.list("links", depth=5)
    assert [entry.path for entry in listed] == [
        f"/home/user/links/{name}" for name in ("dangling", "dir", "real", "soft", "twice")
    ]
    through = await guest.files.list("links/dir/dir")
    assert through[0].path == "/home/user/links/dir/dir/dangling"


async def test_a_listing_is_sorted_with_each_directory_before_its_content(guest: Guest) -> None:
    for path in ("ls/b/2", "ls/b/1/x", "ls/a", "ls/c"):
        await guest.files.write(path, b"")

    async def names(depth: int) -> list[str]:
        entries = await guest.files.list("ls", depth=depth)
        return [entry.path.removeprefix("/home/user/ls/") for entry in entries]

    assert await names(1) == await names(0) == ["a", "b", "c"]
    assert await names(2) == ["a", "b", "b/1", "b/2", "c"]
    assert await names(3) == ["a", "b", "b/1", "b/1/x", "b/2", "c"]


async def test_what_cannot_be_listed_says_why(guest: Guest) -> None:
    with pytest.raises(NotFound):
        await guest.files.list("/no/such")
    with pytest.raises(InvalidRequest):
        await guest.files.list("/etc/passwd")


async def test_a_large_directory_is_listed_whole(guest: Guest) -> None:
    script = "mkdir -p many && cd many && seq 1 5000 | xargs touch"
    await guest.exec(["sh", "-c", script])
    assert len(await guest.files.list("many")) == 5000
    await guest.files.remove("many")


async def test_a_directory_is_made_once(guest: Guest, raw: Raw) -> None:
    entry = await guest.files.make_dir("made/deep/inside")
    assert (entry.kind, entry.owner, entry.mode) == (FileKind.DIRECTORY, "user", 0o755)
    assert (await guest.files.stat("made")).owner == "user"
    with pytest.raises(Conflict):
        await guest.files.make_dir("made/deep/inside")
    assert (await raw.rpc(f"{FS}/MakeDir", {"path": "made"})).status == 409
    await guest.files.write("made/file", b"")
    with pytest.raises(InvalidRequest):
        await guest.files.make_dir("made/file")
    with pytest.raises(InvalidRequest):
        await guest.files.make_dir("made/file/below")


async def test_a_move_makes_the_directories_it_needs(guest: Guest) -> None:
    await guest.files.write("from/file", b"moved")
    entry = await guest.files.move("from/file", "to/new/place")
    assert entry.path == "/home/user/to/new/place"
    assert await guest.files.read("to/new/place") == b"moved"
    with pytest.raises(NotFound):
        await guest.files.stat("from/file")
    with pytest.raises(NotFound):
        await guest.files.move("from/file", "never/made")
    with pytest.raises(NotFound):
        await guest.files.stat("never")


async def test_a_move_crosses_file_systems_and_layers(guest: Guest) -> None:
    await guest.files.write("/dev/shm/dir/inner", b"over")
    await guest.files.move("/dev/shm/dir", "crossed")
    assert await guest.files.read("crossed/inner") == b"over"
    # A directory of the image: rename(2) refuses it on an overlay.
    await guest.files.move("/usr/share/doc", "/usr/share/moved-doc", user="root")
    assert (await guest.files.stat("/usr/share/moved-doc")).kind is FileKind.DIRECTORY
    await guest.files.move("/usr/share/moved-doc", "/usr/share/doc", user="root")


async def test_removing_takes_everything_below_and_absent_is_success(guest: Guest) -> None:
    await guest.files.write("gone/a/b/c", b"")
    await guest.files.write("stays", b"precious")
    await guest.exec(["ln", "-s", "/home/user/stays", "gone/a/link"])
    await guest.exec(["ln", "-s", "/home/user", "gone/a/home"])
    await guest.files.remove("gone")
    await guest.files.remove("gone")
    with pytest.raises(NotFound):
        await guest.files.stat("gone")
    assert await guest.files.read("stays") == b"precious"
    with pytest.raises(InvalidRequest):
        await guest.files.remove("/")


async def test_a_very_deep_tree_is_removed(guest: Guest) -> None:
    script = "import os\nfor _ in range(1500):\n os.mkdir('d'); os.chdir('d')"
    await guest.exec(["python3", "-c", f"import os; os.mkdir('deep'); os.chdir('deep')\n{script}"])
    await guest.files.remove("deep")
    with pytest.raises(NotFound):
        await guest.files.stat("deep")


@pytest.mark.proves("S6")
@pytest.mark.parametrize(
    "path", ["exe", "maps", "mem", "environ", "fd", "fd/0", "task", "root/etc", "cwd"]
)
@pytest.mark.parametrize("who", ["self", "thread-self", "guest"])
async def test_the_guest_itself_cannot_be_reached_through_proc(
    shared: GuestForm, guest: Guest, raw: Raw, path: str, who: str
) -> None:
    target = f"/proc/{shared.inner_pid if who == 'guest' else who}/{path}"
    await guest.exec(["ln", "-sfn", target, "sneaky"])
    for attempt in (target, "sneaky", f"/home/user/../..{target}"):
        with pytest.raises((Forbidden, InvalidRequest, NotFound)):
            await guest.files.read(attempt)
        with pytest.raises((Forbidden, InvalidRequest, NotFound)):
            await guest.files.list(attempt)
        with pytest.raises((Forbidden, InvalidRequest, NotFound, Conflict)):
            await guest.files.write(f"{attempt}/x" if path == "cwd" else attempt, b"x")
        watch = await raw.rpc(f"{FS}/CreateWatcher", {"path": attempt})
        assert watch.status >= 400


async def test_other_processes_in_proc_can_be_read(guest: Guest) -> None:
    assert await guest.files.read("/proc/1/comm")


@pytest.mark.proves("S6")
async def test_no_program_of_the_host_can_be_started_through_proc(guest: Guest) -> None:
    await guest.exec(["ln", "-sfn", "/proc/self/exe", "magic"])
    await guest.files.write("script", b"#!/proc/self/exe\n")
    await guest.files.write("script2", b"#! /home/user/magic -x\n")
    await guest.exec(["chmod", "755", "script", "script2"])
    for argv in (["/proc/self/exe"], ["./magic"], ["./script"], ["./script2"]):
        with pytest.raises(InvalidRequest, match="/proc"):
            await guest.exec(argv)
    with pytest.raises(InvalidRequest, match="/proc"):
        await guest.exec(["exe"], env={"PATH": "/proc/self:/bin"})
    with pytest.raises(InvalidRequest):
        await guest.exec(["true"], cwd="/proc/self/cwd")
