"""Leaving paths out of the copy of a disk whose contents somebody hostile chose."""

import os
import socket
import stat
from pathlib import Path

import pytest

from paddock.adapters.providers.local.leaving_out import leave_out, takes_all
from paddock.domain.ignoring import MOST_SHOWN, parsed
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.conftest import Need


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume" / "upper" / "home" / "user").mkdir(parents=True)
    return tmp_path / "volume"


@pytest.fixture
def home(volume: Path) -> Path:
    return volume / "upper" / "home" / "user"


def left(volume: Path, *rules: str) -> tuple[list[str], int]:
    found = leave_out(volume, parsed(rules))
    assert [entry.name for entry in volume.iterdir()] == ["upper"], "nothing lies about"
    return list(found.paths), found.count


@pytest.mark.proves("N1")
def test_a_directory_goes_with_all_below_and_its_namesake_stays(volume, home):
    for place in ("out/deep", "src/out"):
        (home / place).mkdir(parents=True)
        (home / place / "file").write_bytes(b"x" * 5000)
    found = leave_out(volume, parsed(["/home/user/out"]))
    assert (found.paths, found.count) == (("/home/user/out",), 1)
    assert 5000 <= found.size_bytes < 20_000
    assert not (home / "out").exists()
    assert (home / "src/out/file").read_bytes() == b"x" * 5000


def test_what_is_not_there_is_not_missed(volume, home):
    (home / "file").touch()
    rules = ["/nowhere/at/all", "/home/user/file/below", f"/home/user/{'x' * 300}", "/home/nobody"]
    assert left(volume, *rules) == ([], 0)
    assert (home / "file").exists()


@pytest.mark.proves("S6")
@pytest.mark.parametrize("target", ["/home/user/src", "src", "../user/src", "/"])
def test_no_link_leads_to_anything_else(volume, home, tmp_path, target):
    (home / "src").mkdir()
    (home / "src" / "main.py").write_text("work")
    (tmp_path / "host").write_text("not theirs")
    (home / ".cache").symlink_to(target)
    (home / "out").symlink_to(tmp_path)
    (home / "files").mkdir()
    (home / "files" / "a.tmp").symlink_to(tmp_path / "host")
    rules = ["/home/user/.cache/main.py", "/home/user/.cache/*", "/home/user/out/host"]
    assert left(volume, *rules) == ([], 0)
    rules = ["/home/user/.cache", "/home/user/files/*.tmp"]
    assert left(volume, *rules) == (["/home/user/.cache", "/home/user/files/a.tmp"], 2)
    assert (home / "src" / "main.py").read_text() == "work"
    assert (tmp_path / "host").read_text() == "not theirs"
    assert (home / "out").is_symlink()


@pytest.mark.proves("S6")
def test_a_link_at_the_top_is_no_way_either(volume, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").touch()
    (volume / "upper" / "etc").symlink_to(tmp_path / "etc")
    assert left(volume, "/etc/passwd", "/etc/*") == ([], 0)
    assert (tmp_path / "etc" / "passwd").exists()


def test_pipes_sockets_and_names_of_any_bytes_go_too(volume, home, monkeypatch):
    os.mkfifo(home / "pipe.tmp")
    monkeypatch.chdir(home)  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.tmp")
    (home / os.fsdecode(b"\xff.tmp")).touch()
    (home / "line\n.tmp").touch()
    paths, count = left(volume, "/home/user/*.tmp")
    assert count == 4
    assert "/home/user/\\xff.tmp" in paths
    assert not list(home.iterdir())


def test_many_are_counted_and_the_first_are_named(volume, home):
    for number in range(MOST_SHOWN + 20):
        (home / f"{number:04}.tmp").touch()
    (home / "kept").touch()
    paths, count = left(volume, "/home/user/*.tmp")
    assert (len(paths), count) == (MOST_SHOWN, MOST_SHOWN + 20)
    assert paths[0] == "/home/user/0000.tmp"
    assert [entry.name for entry in home.iterdir()] == ["kept"]


def test_a_tree_too_deep_to_name_goes(volume, home):
    (home / "deep").mkdir()
    here = os.open(home / "deep", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 100, dir_fd=here)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert left(volume, "/home/user/deep") == (["/home/user/deep"], 1)


@pytest.mark.proves("N1")
def test_what_was_removed_of_the_template_stays_removed(volume, home, need: Need):
    if os.geteuid() != 0:
        need("root", "only root makes the mark of a removed file")
    os.mknod(home / "gone", stat.S_IFCHR, os.makedev(0, 0))
    assert left(volume, "/home/user/gone", "/home/user/g*") == ([], 0)
    assert stat.S_ISCHR((home / "gone").lstat().st_mode)


@pytest.mark.proves("N1")
@pytest.mark.parametrize(
    ("rules", "all_of_it"),
    [
        (["/home/user/w*", "/home/user/.*"], True),
        (["/home/user/w*", "/home/user/.cache"], True),
        (["/home/user/w*"], False),
        (["/home/user/.cache"], False),
        (["/home/user/work", "/home/user/.cache"], False),
        (["/home/u*"], True),
        (["/srv/*"], False),
    ],
)
def test_it_is_seen_when_nothing_of_the_work_would_remain(volume, home, rules, all_of_it):
    assert not takes_all(volume, parsed(rules), ["/home/user"]), "there is nothing to lose"
    (home / "work").touch()
    (home / ".cache").mkdir()
    assert takes_all(volume, parsed(rules), ["/nowhere", "/home/user"]) is all_of_it


@pytest.mark.proves("N1")
async def test_a_snapshot_holds_everything_rather_than_nothing_of_a_home_elsewhere(installation):
    async with installation.opened() as provider:
        seen = await provider.create("k", SandboxSpec(template="tiny"))
        async with Guest(await provider.guest(seen.ref)) as guest:
            script = "mkdir -p /data/me; touch /data/me/a /data/me/b; "
            script += "sed -i 's,:/home/user:,:/data/me:,' /etc/passwd; grep /data/me /etc/passwd"
            ran = await guest.exec(["sh", "-c", script], user="root")
            assert ran.exit_code == 0, ran.stderr
        for number, rule in enumerate(["/data/me", "/data/*"]):
            taken = await provider.snapshot(seen.ref, f"whole {number}", ignore=(rule,))
            assert (taken.whole, taken.left_out.count) == ("work", 0)
        taken = await provider.snapshot(seen.ref, "s", ignore=("/data/me/a*",))
        assert (taken.whole, taken.left_out.paths) == (None, ("/data/me/a",))
        await installation.empty(provider)
    installation.assert_no_traces()
