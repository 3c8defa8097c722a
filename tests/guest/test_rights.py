"""Whose rights count when a caller asks for a file: the named account's, and never the guest's."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from paddock.domain.errors import Conflict, Forbidden, NotFound
from paddock.guest import rights
from paddock.guest_client import Guest
from paddock.guest_client.posix import Opening
from tests.guest.forms import GuestForm
from tests.guest.raw import Raw

pytestmark = pytest.mark.timeout(60)

FS = "filesystem.Filesystem"
SECRET = "/srv/secret"
# Root's own: a file, a directory that is closed, and one that is open but not to be changed.
SET_UP = f"""
rm -rf {SECRET} /home/user/planted
mkdir -m 700 {SECRET} {SECRET}/closed
mkdir -m 755 {SECRET}/open
echo root > {SECRET}/closed/file; echo root > {SECRET}/open/file
chmod 600 {SECRET}/open/file
chmod 755 {SECRET}
"""
# What the user leads the caller there by.
PLANT = f"""
mkdir planted
ln -s {SECRET}/open/file planted/file
ln -s {SECRET}/closed planted/closed
ln -s {SECRET}/open planted/open
ln -s {SECRET}/open/new planted/dangling
echo mine > planted/mine
"""


async def _all(items: AsyncIterator[object]) -> list[object]:
    return [item async for item in items]


Attempt = Callable[[Guest], Awaitable[object]]
ATTEMPTS: dict[str, Attempt] = {
    "read a file": lambda g: g.files.read("planted/file"),
    "write a file": lambda g: g.files.write("planted/file", b"x"),
    "write a large file": lambda g: g.files.write("planted/file", b"x" * (3 << 20)),
    "write a file that is not there": lambda g: g.files.write("planted/dangling", b"x"),
    "write below": lambda g: g.files.write("planted/open/sub/new", b"x"),
    "read below": lambda g: g.files.read("planted/closed/file"),
    "look below": lambda g: g.files.stat("planted/closed/file"),
    "list": lambda g: g.files.list("planted/closed"),
    "make a directory": lambda g: g.files.make_dir("planted/open/new"),
    "make directories": lambda g: g.files.make_dir("planted/open/new/and/newer"),
    "move away": lambda g: g.files.move("planted/open/file", "planted/taken"),
    "move there": lambda g: g.files.move("planted/mine", "planted/open/file"),
    "move below": lambda g: g.files.move("planted/mine", "planted/open/sub/mine"),
    "remove a file": lambda g: g.files.remove("planted/open/file"),
    "remove a tree": lambda g: g.files.remove("planted/open/../closed"),
    "open a file": lambda g: g.posix.open("planted/file", "", Opening(read=True)),
    "cut a file": lambda g: g.posix.open("planted/file", "", Opening(write=True, cut=True)),
    "make a file": lambda g: g.posix.open("planted/dangling", "", Opening(write=True, create=True)),
    "write to a file": lambda g: g.posix.write_at("planted/file", "", b"x", 0),
    "add to a file": lambda g: g.posix.write_at("planted/file", "", b"x", 0, append=True),
    "shorten a file": lambda g: g.posix.set("planted/file", "", {"size": 0}),
    "change the mode": lambda g: g.posix.set("planted/file", "", {"mode": 0o777}),
    "change the owner": lambda g: g.posix.set("planted/file", "", {"uid": 1000, "gid": 1000}),
    "give away": lambda g: g.posix.set("planted/mine", "", {"uid": 0, "gid": 0}),
    "change the times": lambda g: g.posix.set("planted/file", "", {"atime": 1, "mtime": 1}),
    "look at one below": lambda g: g.posix.stat("planted/closed/file", ""),
    "scan": lambda g: _all(g.posix.scan("planted/closed", "")),
    "make one directory": lambda g: g.posix.make_directory("planted/open/new", ""),
    "unlink": lambda g: g.posix.remove("planted/open/file", ""),
    "remove a directory": lambda g: g.posix.remove("planted/open/../closed", "", directory=True),
    "rename away": lambda g: g.posix.rename("planted/open/file", "", "planted/x", replace=True),
    "rename there": lambda g: g.posix.rename("planted/mine", "", "planted/open/file", replace=True),
    "link there": lambda g: g.posix.link("planted/open/new", "", "/etc/passwd", hard=False),
    "link by a second name": lambda g: g.posix.link(
        "planted/open/new", "", "planted/mine", hard=True
    ),
    "read a link below": lambda g: g.posix.read_link("planted/closed/file", ""),
}


async def _tree(guest: Guest) -> str:
    script = f"find {SECRET} -printf '%p %u %g %m %s %l\\n' | sort; cat {SECRET}/*/file"
    return (await guest.exec(["sh", "-c", script], user="root")).text


@pytest.mark.proves("S6")
@pytest.mark.parametrize("what", ATTEMPTS)
async def test_a_planted_link_is_no_way_to_roots_files(guest: Guest, what: str) -> None:
    await guest.exec(["sh", "-c", SET_UP], user="root")
    assert (await guest.exec(["sh", "-c", PLANT])).exit_code == 0
    before = await _tree(guest)
    with pytest.raises(Forbidden, match=r"permission denied|operation not permitted"):
        await ATTEMPTS[what](guest)
    assert await _tree(guest) == before
    assert await guest.files.read("planted/mine") == b"mine\n"


AS_ROOT = {"x_paddock_files_as_root": "true"}
PLANTED_CALLS = {
    "Stat": {"path": "planted/closed/file"},
    "ListDir": {"path": "planted/closed"},
    "MakeDir": {"path": "planted/open/new"},
    "Move": {"source": "planted/mine", "destination": "planted/open/mine"},
    "Remove": {"path": "planted/closed/file"},
    "CreateWatcher": {"path": "planted/closed"},
}


@pytest.mark.proves("S6")
async def test_root_that_acts_for_an_account_follows_no_planted_link(
    guest: Guest, raw: Raw
) -> None:
    await guest.exec(["sh", "-c", SET_UP], user="root")
    assert (await guest.exec(["sh", "-c", PLANT])).exit_code == 0
    before = await _tree(guest)
    for method, message in PLANTED_CALLS.items():
        answer = await raw.rpc(f"{FS}/{method}", message, **AS_ROOT)
        assert (answer.status, answer.json()["code"]) == (403, "permission_denied"), method
    octets = {"content-type": "application/octet-stream", "x-paddock-files-as-root": "true"}
    for path in ("planted/file", "planted/dangling", "planted/open/sub/new"):
        for content in (b"x", b"x" * (3 << 20)):
            answer = await raw("POST", f"/files?path={path}", headers=octets, body=content)
            assert answer.status == 403, path
    assert (await raw("GET", "/files?path=planted/file", headers=octets)).status == 403
    assert await _tree(guest) == before


async def test_root_that_acts_for_an_account_gives_it_what_it_makes(guest: Guest, raw: Raw) -> None:
    await guest.exec(["sh", "-c", SET_UP], user="root")
    assert (await raw.rpc(f"{FS}/MakeDir", {"path": f"{SECRET}/a/b"}, **AS_ROOT)).status == 200
    assert (await raw.rpc(f"{FS}/Stat", {"path": f"{SECRET}/closed/file"}, **AS_ROOT)).status == 200
    moved = {"source": f"{SECRET}/closed/file", "destination": f"{SECRET}/open/c/file"}
    assert (await raw.rpc(f"{FS}/Move", moved, **AS_ROOT)).status == 200
    made = await guest.exec(["stat", "-c", "%U:%G", f"{SECRET}/a", f"{SECRET}/a/b"], user="root")
    assert made.text == "user:user\n" * 2
    assert (await guest.files.stat(f"{SECRET}/open/c")).owner == "user"
    assert (await raw.rpc(f"{FS}/Remove", {"path": SECRET}, **AS_ROOT)).status == 200
    with pytest.raises(NotFound):
        await guest.files.stat(SECRET)


async def test_who_is_root_by_name_may_do_all_of_it(guest: Guest) -> None:
    await guest.exec(["sh", "-c", SET_UP], user="root")
    await guest.files.write(f"{SECRET}/closed/file", b"changed", user="root")
    assert await guest.files.read(f"{SECRET}/closed/file", user="root") == b"changed"
    assert (await guest.files.list(f"{SECRET}/closed", user="root"))[0].owner == "root"
    await guest.files.make_dir(f"{SECRET}/open/new", user="root")
    await guest.files.move(f"{SECRET}/open/file", f"{SECRET}/open/new/file", user="root")
    await guest.files.remove(SECRET, user="root")
    with pytest.raises(NotFound):
        await guest.files.stat(SECRET)


async def test_the_refusal_names_the_whole_path_and_has_its_code(guest: Guest, raw: Raw) -> None:
    octets = {"content-type": "application/octet-stream"}
    path = "/usr/not/there/yet"
    answer = await raw("POST", f"/files?path={path}", headers=octets, body=b"x")
    assert (answer.status, answer.json()) == (
        403,
        {"code": 403, "message": f"{path}: permission denied"},
    )
    answer = await raw("GET", "/files?path=/etc/shadow")
    assert (answer.status, answer.json()["code"]) == (403, 403)
    answer = await raw.rpc(f"{FS}/MakeDir", {"path": path})
    assert answer.status == 403
    assert answer.json() == {"code": "permission_denied", "message": f"{path}: permission denied"}
    await guest.files.write("moved", b"")
    answer = await raw.rpc(f"{FS}/Move", {"source": "moved", "destination": path})
    assert answer.json()["message"] == f"{path}: permission denied"


async def test_a_listing_shows_that_a_directory_is_closed_but_not_what_is_in_it(
    guest: Guest,
) -> None:
    await guest.exec(["sh", "-c", SET_UP], user="root")
    seen = {entry.path for entry in await guest.files.list(SECRET, depth=3)}
    assert seen == {f"{SECRET}/{name}" for name in ("closed", "open", "open/file")}


async def test_a_watch_sees_only_what_its_user_may(guest: Guest, raw: Raw) -> None:
    await guest.exec(["sh", "-c", SET_UP], user="root")
    assert (await raw.rpc(f"{FS}/CreateWatcher", {"path": f"{SECRET}/closed"})).status == 403
    answer = await raw.rpc(f"{FS}/CreateWatcher", {"path": SECRET, "recursive": True})
    identifier = answer.json()["watcherId"]
    script = f"mkdir -m 700 {SECRET}/late; touch {SECRET}/closed/x {SECRET}/open/x {SECRET}/late/x"
    await guest.exec(["sh", "-c", script], user="root")
    answer = await raw.rpc(f"{FS}/GetWatcherEvents", {"watcherId": identifier})
    assert {event["name"] for event in answer.json()["events"]} == {"late", "open/x"}
    await raw.rpc(f"{FS}/RemoveWatcher", {"watcherId": identifier})


async def test_the_groups_of_an_account_count_too(guest: Guest) -> None:
    script = "groupadd -f sharers && usermod -aG sharers user && rm -rf /srv/shared &&"
    script += "mkdir -m 2770 /srv/shared && chgrp sharers /srv/shared"
    assert (await guest.exec(["sh", "-c", script], user="root")).exit_code == 0
    await guest.files.write("/srv/shared/file", b"ours")
    entry = await guest.files.stat("/srv/shared/file")
    assert (entry.owner, entry.group) == ("user", "sharers")
    with pytest.raises(Forbidden):
        await guest.files.write("/srv/shared/other", b"", user="nobody")


async def test_requests_of_different_accounts_do_not_get_mixed_up(guest: Guest) -> None:
    await guest.exec(["sh", "-c", "rm -rf /tmp/mixed; mkdir -m 1777 /tmp/mixed"], user="root")
    users = ("user", "root", "nobody")

    async def make(number: int) -> None:
        user = users[number % 3]
        size = (2 << 20) if number % 7 == 0 else 10
        await guest.files.write(f"/tmp/mixed/{number}", b"x" * size, user=user)
        await guest.files.make_dir(f"/tmp/mixed/d{number}", user=user)
        with pytest.raises((Forbidden, Conflict)):
            await guest.files.make_dir("/root" if user == "root" else "/root/x", user=user)

    await asyncio.gather(*(make(number) for number in range(60)))
    owners = {e.name.lstrip("d"): e.owner for e in await guest.files.list("/tmp/mixed")}
    assert owners == {str(number): users[number % 3] for number in range(60)}
    # And the guest is root as before.
    assert (await guest.exec(["id", "-u"], user="root")).text == "0\n"
    assert await guest.files.read("/etc/shadow", user="root")


async def test_writing_takes_away_a_set_user_id_bit(guest: Guest) -> None:
    for size in (3, 3 << 20):
        script = "cp /bin/true /srv/suid; chown root:user /srv/suid; chmod 4775 /srv/suid"
        await guest.exec(["sh", "-c", script], user="root")
        await guest.files.write("/srv/suid", b"x" * size)
        mode = (await guest.exec(["stat", "-c", "%a", "/srv/suid"])).text
        assert mode == "775\n"


HOSTILE = f"""
import os, sys, time
box = sys.argv[1]
os.rmdir(box + "/tmp")
os.symlink("{SECRET}/open/file", box + "/tmp")
held = os.open(box + "/new", os.O_RDONLY)
print("on", flush=True)
while True:
    for directory in (f"{{box}}/new", f"/proc/self/fd/{{held}}"):
        try: os.mkdir(f"{{directory}}/{{time.monotonic()}}")
        except OSError: pass
"""


async def test_a_run_does_not_take_over_an_inbox_that_others_have_filled(
    guest: Guest, shared: GuestForm
) -> None:
    await guest.exec(["sh", "-c", SET_UP], user="root")
    before = await _tree(guest)
    await guest.runs.start("linked", ["sleep", "60"])
    inbox = f"{shared.state_dir}/inboxes/linked"
    await guest.runs.start("hostile", ["python3", "-c", HOSTILE, inbox])
    async for event in guest.runs.tail("hostile"):
        assert event.data == b"on\n"  # type: ignore[union-attr]
        break
    await guest.runs.end("linked", grace=0)
    assert [event async for event in guest.runs.tail("linked")]
    await guest.runs.ack("linked")
    await guest.runs.start("linked", ["sh", "-c", "stat -c '%n %F' $PADDOCK_INBOX/*"])
    events = [event async for event in guest.runs.tail("linked")]
    lines = events[0].data.decode().splitlines()  # type: ignore[union-attr]
    assert lines == [f"{inbox}/{name} directory" for name in ("cur", "new", "tmp")]
    assert await _tree(guest) == before
    await guest.runs.end("hostile", grace=0)
    assert [event async for event in guest.runs.tail("hostile")]
    for key in ("hostile", "linked"):
        await guest.runs.ack(key)


# In a process of its own, because it is about the rights of a process.
SCRIPT = f"""
import json, os, sys
sys.path.insert(0, {str(Path(rights.__file__).parents[2])!r})
from paddock.guest import rights, syscalls
from paddock.guest.errors import GuestError
from paddock.guest.users import ROOT, Account
if IN_EFFECT: syscalls.has_setfsuid = lambda: False
someone = Account("someone", 4001, 4002, "/", "/bin/sh", (4002, 4003))
other = Account("other", 5001, 5002, "/", "/bin/sh", (5002,))
def ids():
    lines = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)
    return [lines["Uid"].split(), lines["Gid"].split(), lines["Groups"].split()]
def readable():
    try: open("/etc/shadow").close()
    except PermissionError: return False
    return True
"""


@pytest.mark.parametrize("in_effect", [False, True], ids=["for-files", "as-on-gvisor"])
@pytest.mark.usefixtures("as_root")
def test_rights_are_given_back_whatever_happens(in_effect: bool) -> None:
    code = """
found = [readable()]
for error in (None, OSError, KeyboardInterrupt):
    try:
        with rights.of(someone):
            found += [ids(), readable()]
            if error: raise error
    except BaseException: pass
    found += [ids()[:2], readable()]
print(json.dumps(found))
"""
    found = _run(in_effect, code)
    root = [["0"] * 4, ["0"] * 4]
    users = (["0", "4001", "0", "4001"], ["0", "4002", "0", "4002"], ["4002", "4003"])
    inside = (
        list(users)
        if in_effect
        else [["0", "0", "0", "4001"], ["0", "0", "0", "4002"], ["4002", "4003"]]
    )
    assert found == [True, *[inside, False, root, True] * 3]


@pytest.mark.parametrize("in_effect", [False, True], ids=["for-files", "as-on-gvisor"])
@pytest.mark.usefixtures("as_root")
def test_rights_within_rights_are_refused(in_effect: bool) -> None:
    code = """
try:
    with rights.of(someone):
        with rights.of(other): pass
except (RuntimeError, GuestError) as error:
    print(json.dumps([type(error).__name__, readable()]))
"""
    assert _run(in_effect, code) == ["GuestError" if in_effect else "RuntimeError", True]


@pytest.mark.parametrize("in_effect", [False, True], ids=["for-files", "as-on-gvisor"])
@pytest.mark.usefixtures("as_root")
def test_a_guest_that_may_not_become_others_says_so(in_effect: bool) -> None:
    code = """
os.setgroups([]); os.setresgid(4002, 4002, 4002); os.setresuid(4001, 4001, 4001)
with rights.of(someone): pass
with rights.of(None): pass
said = []
for account in (ROOT, other):
    try:
        with rights.of(account): pass
    except GuestError as error: said.append(error.code)
try:
    with rights.of_ids(5001, 5002): pass
except PermissionError: said.append("refused")
print(json.dumps(said))
"""
    assert _run(in_effect, code) == ["permission_denied", "permission_denied", "refused"]


def _run(in_effect: bool, code: str) -> object:
    script = SCRIPT.replace("IN_EFFECT", str(in_effect)) + code
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=20
    )
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)
