"""sftp, scp and rsync, with the clients that people have."""

import os
import shutil
import stat

import pytest

from paddock.domain.errors import leaves
from paddock.interfaces.ssh.sftp.asking import FAILURES
from tests.interfaces.ssh.conftest import sha256

pytestmark = [pytest.mark.timeout(120)]
MIB = 1 << 20


@pytest.fixture
async def there(door):
    """A directory of the sandbox; the reference provider's is one of this host."""
    place = f"/tmp/pd-files-{door.box}"
    assert (await door.ssh(f"mkdir -p {place}")).code == 0
    yield place
    await door.ssh(f"rm -rf {place}")


@pytest.fixture
def here(door):
    place = door.folder / "here"
    place.mkdir()
    yield place
    shutil.rmtree(place)


async def scp(door, *words):
    return await door.run("scp", *door.options(), *words)


@pytest.mark.proves("E7")
@pytest.mark.parametrize("mib", [10, pytest.param(50, marks=pytest.mark.soak)])
async def test_a_large_file_by_sftp_arrives_unchanged(door, here, there, mib):
    data = os.urandom(mib * MIB)
    (here / "out").write_bytes(data)
    done = await door.sftp(f"put {here}/out {there}/file", f"get {there}/file {here}/back")
    assert done.code == 0, done.said
    assert sha256((here / "back").read_bytes()) == sha256(data)
    assert sha256(data) in (await door.ssh(f"sha256sum {there}/file")).text


@pytest.mark.proves("E7")
@pytest.mark.parametrize("protocol", ["-s", "-O"])
async def test_scp_copies_trees_with_modes_and_times(door, here, there, protocol):
    tree = here / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "run").write_text("#!/bin/sh\n")
    (tree / "sub" / "run").chmod(0o755)
    (tree / "locked").write_bytes(b"read only" * 1000)
    (tree / "locked").chmod(0o444)
    (tree / "a name with spaces").write_bytes(os.urandom(300_000))
    (tree / "empty").touch()
    os.utime(tree / "locked", (1_000_000_000, 1_100_000_000))
    remote = f"{door.token}@127.0.0.1"
    done = await scp(door, protocol, "-rp", str(tree), f"{remote}:{there}/")
    assert done.code == 0, done.said
    done = await scp(door, protocol, "-rp", f"{remote}:{there}/tree", f"{here}/back")
    assert done.code == 0, done.said
    for path in tree.rglob("*"):
        other = here / "back" / path.relative_to(tree)
        assert stat.S_IMODE(other.stat().st_mode) == stat.S_IMODE(path.stat().st_mode), path
        if path.is_file():
            assert other.read_bytes() == path.read_bytes()
    assert (here / "back" / "locked").stat().st_mtime == 1_100_000_000


async def test_what_fails_is_told_with_an_exit_code(door, here, there):
    remote = f"{door.token}@127.0.0.1"
    done = await scp(door, f"{remote}:{there}/nothing", str(here))
    assert (done.code, "no such file" in done.said.lower()) == (1, True)
    (here / "file").write_text("x")
    done = await scp(door, str(here / "file"), f"{remote}:{there}/no/such/place")
    assert done.code == 1


async def test_the_requests_of_an_sftp_client_do_what_they_say(door, here, there):
    (here / "a").write_text("hello")
    done = await door.sftp(
        f"cd {there}",
        f"put {here}/a a",
        "mkdir d",
        "rename a d/b",
        "symlink b d/link",
        "ln d/b d/hard",
        "chmod 600 d/b",
        "ls -la d",
        "df",
        "pwd",
        f"get d/link {here}/c",
    )
    assert done.code == 0, done.said
    assert (here / "c").read_text() == "hello"
    assert f"Remote working directory: {there}" in done.text
    listed = [line.split() for line in done.text.splitlines() if line.endswith((" b", " hard"))]
    assert {line[0] for line in listed} == {"-rw-------"}
    refused = await door.sftp(f"rmdir {there}/d")
    assert refused.code == 1
    refused = await door.sftp(f"rm {there}/d")
    assert refused.code == 1
    assert (await door.ssh(f"cat {there}/d/b")).text == "hello"
    done = await door.sftp(f"rm {there}/d/*", f"rmdir {there}/d")
    assert done.code == 0, done.said


async def test_a_transfer_that_broke_off_is_taken_up_again(door, here, there):
    data = os.urandom(3 * MIB)
    (here / "file").write_bytes(data)
    await door.sftp(f"put {here}/file {there}/file")
    (here / "back").write_bytes(data[:1_234_567])
    done = await door.sftp(f"reget {there}/file {here}/back")
    assert done.code == 0, done.said
    assert (here / "back").read_bytes() == data
    await door.ssh(f"truncate -s 777777 {there}/file")
    done = await door.sftp(f"reput {here}/file {there}/file")
    assert done.code == 0, done.said
    assert sha256(data) in (await door.ssh(f"sha256sum {there}/file")).text


async def test_files_of_proc_and_empty_ones_can_be_read(door, here, there):
    await door.ssh(f"touch {there}/empty")
    done = await door.sftp(f"get /proc/version {here}/version", f"get {there}/empty {here}/empty")
    assert done.code == 0, done.said
    assert (here / "empty").read_bytes() == b""


async def test_a_large_directory_is_listed_whole(door, there):
    assert (await door.ssh(f"cd {there} && seq 1 3000 | xargs touch")).code == 0
    done = await door.sftp(f"ls -1 {there}")
    assert len([line for line in done.text.splitlines() if line.startswith(there)]) == 3000


@pytest.mark.proves("E7")
async def test_rsync_works_where_the_sandbox_has_it(door, here, there, need):
    if shutil.which("rsync") is None:
        need("rsync", "not installed")
    (here / "tree").mkdir()
    for number in range(30):
        (here / "tree" / f"file {number}").write_bytes(os.urandom(20_000))
    remote = f"{door.token}@127.0.0.1"
    shell = " ".join(["ssh", *door.options()])
    push = ["rsync", "-a", "--delete", "-e", shell, f"{here}/tree/", f"{remote}:{there}/tree/"]
    done = await door.run(*push)
    assert done.code == 0, done.said
    (here / "tree" / "file 3").unlink()
    assert (await door.run(*push)).code == 0
    pull = ["rsync", "-a", "-e", shell, f"{remote}:{there}/tree/", f"{here}/back/"]
    assert (await door.run(*pull)).code == 0
    names = {path.name for path in (here / "tree").iterdir()}
    assert names == {path.name for path in (here / "back").iterdir()}
    assert all((here / "back" / n).read_bytes() == (here / "tree" / n).read_bytes() for n in names)


async def test_a_stopped_sandbox_is_woken_for_a_copy(door, here, there):
    (here / "file").write_text("awake")
    await door.plane.admin.post(f"/v1/sandboxes/{door.box}/stop")
    done = await scp(door, str(here / "file"), f"{door.token}@127.0.0.1:{there}/file")
    assert done.code == 0, done.said
    assert (await door.ssh(f"cat {there}/file")).text == "awake"


def test_every_error_has_its_words():
    assert set(FAILURES) == set(leaves())
