"""Files by the unmodified SDK."""

import hashlib
import json
import os
import time
import urllib.error
import urllib.request

import pytest
from e2b import (
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    SandboxException,
)
from e2b.sandbox.filesystem.filesystem import WriteEntry

pytestmark = [pytest.mark.timeout(60)]


def fetch(url: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_text_bytes_and_streams_come_back_as_they_were(box):
    box.files.write("hello.txt", "grüße")
    assert box.files.read("hello.txt") == "grüße"
    assert box.files.read("/home/user/hello.txt", format="bytes") == "grüße".encode()
    data = os.urandom(3 << 20)
    box.files.write("data.bin", data)
    pieces = b"".join(box.files.read("data.bin", format="stream"))
    assert hashlib.sha256(pieces).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("mib", [48, pytest.param(192, marks=pytest.mark.soak)])
def test_a_large_file_passes(box, tmp_path, mib):
    size = mib << 20
    place = tmp_path / "large"
    with place.open("wb") as file:
        file.truncate(size)
    with place.open("rb") as file:
        box.files.write("large.bin", file, request_timeout=60)
    assert box.files.get_info("large.bin").size == size
    seen = 0
    for piece in box.files.read("large.bin", format="stream", request_timeout=60):
        seen += len(piece)
    assert seen == size
    box.files.remove("large.bin")


def test_packed_transfers_and_what_is_noted_of_a_file(box):
    box.files.write("packed", "x" * 9999, gzip=True, metadata={"kind": "long"})
    assert box.files.read("packed", gzip=True) == "x" * 9999
    assert box.files.get_info("packed").metadata == {"kind": "long"}


def test_several_files_in_one_request(box):
    made = box.files.write_files(
        [WriteEntry(path="many/a.txt", data="a"), WriteEntry(path="many/b.txt", data=b"b")]
    )
    assert [each.path for each in made] == ["/home/user/many/a.txt", "/home/user/many/b.txt"]
    assert [box.files.read(each.path) for each in made] == ["a", "b"]


def test_directories_are_made_listed_moved_and_removed(box):
    assert box.files.make_dir("d/e") is True
    assert box.files.make_dir("d/e") is False
    box.files.write("d/e/f.txt", "x")
    assert [each.name for each in box.files.list("d")] == ["e"]
    assert [each.path for each in box.files.list("d", depth=2)][-1] == "/home/user/d/e/f.txt"
    assert box.files.rename("d/e/f.txt", "d/g.txt").path == "/home/user/d/g.txt"
    assert not box.files.exists("d/e/f.txt")
    info = box.files.get_info("d/g.txt")
    assert (info.type, info.size, info.owner, info.permissions) == (
        FileType.FILE,
        1,
        "user",
        "-rw-r--r--",
    )
    box.files.remove("d")
    assert not box.files.exists("d")


def test_what_is_not_there_has_its_own_exception(box):
    with pytest.raises(FileNotFoundException):
        box.files.read("nothing.txt")
    with pytest.raises(FileNotFoundException):
        box.files.list("/nowhere")
    with pytest.raises(InvalidArgumentException):
        box.files.list("/etc/hostname")


def test_another_user_writes_where_that_one_may(box):
    box.files.write("/root/secret.txt", "s", user="root")
    assert box.files.read("/root/secret.txt", user="root") == "s"
    assert box.files.get_info("/root/secret.txt", user="root").owner == "root"


def test_changes_of_a_directory_are_told(box):
    box.files.make_dir("watched")
    handle = box.files.watch_dir("watched", recursive=True)
    kinds = []

    def until(name, kind):
        deadline = time.monotonic() + 20
        while (name, kind) not in kinds:
            assert time.monotonic() < deadline, kinds
            kinds.extend((each.name, each.type) for each in handle.get_new_events())

    box.files.write("watched/new.txt", "x")
    box.files.make_dir("watched/sub")
    until("sub", FilesystemEventType.CREATE)
    box.files.write("watched/sub/deep.txt", "x")
    box.files.remove("watched/new.txt")
    until("sub/deep.txt", FilesystemEventType.WRITE)
    until("new.txt", FilesystemEventType.REMOVE)
    assert kinds[:3] == [
        ("new.txt", FilesystemEventType.CREATE),
        ("new.txt", FilesystemEventType.CHMOD),
        ("new.txt", FilesystemEventType.WRITE),
    ]
    handle.stop()


def test_signed_addresses_read_and_write_without_a_key(box):
    box.files.write("signed.txt", "by address")
    url = box.download_url("signed.txt", use_signature_expiration=60)
    assert fetch(url) == (200, b"by address")
    assert fetch(url.replace("signed.txt", "other.txt"))[0] == 401
    late = box.download_url("signed.txt", use_signature_expiration=-10)
    assert fetch(late) == (401, b'{"message": "signature is already expired", "code": 401}')
    upload = box.upload_url("up.txt", use_signature_expiration=60)
    status, _ = fetch(upload, b"uploaded", **{"Content-Type": "application/octet-stream"})
    assert status == 200
    assert box.files.read("up.txt") == "uploaded"
    assert fetch(f"{box.envd_api_url}/files?path=signed.txt&signature=v1_wrong")[0] == 401


@pytest.mark.parametrize("name", ["path", "p%61th"])
def test_a_signature_opens_nothing_beside_what_it_was_made_for(box, name):
    box.files.write("report.txt", "for everyone")
    box.files.write("private.txt", "for nobody", user="root")
    path, query = box.download_url("report.txt", user="user").split("?")
    status, said = fetch(f"{path}?{name}=/root/private.txt&username=root&{query}")
    assert (status, json.loads(said)["code"]) == (400, 400)
    assert b"more than once" in said
    path, query = box.upload_url("report.txt", user="user").split("?")
    kind = {"Content-Type": "application/octet-stream"}
    assert fetch(f"{path}?{name}=/root/private.txt&{query}", b"taken", **kind)[0] == 400
    assert box.files.read("private.txt", user="root") == "for nobody"


def test_files_outside_the_home_directory_belong_to_the_user_afterwards(box):
    assert box.files.make_dir("/workspace/src") is True
    box.files.write("/data/in/x.csv", "1")
    box.files.write("/opt/app/large.bin", b"x" * (3 << 20))
    box.files.write("/etc/hostname", "taken over")
    for path in ("/workspace/src", "/data/in", "/data/in/x.csv", "/opt/app/large.bin"):
        assert box.files.get_info(path).owner == "user", path
    assert box.files.get_info("/etc/hostname").owner == "user"
    assert box.files.read("/data/in/x.csv") == "1"
    box.commands.run("echo more >> /data/in/x.csv")
    box.files.rename("/data/in/x.csv", "/srv/moved/x.csv")
    assert box.files.read("/srv/moved/x.csv") == "1more\n"
    box.files.remove("/opt/app")
    assert not box.files.exists("/opt/app")


def test_files_that_only_root_may_read_are_read_and_listed_and_watched(box):
    box.commands.run("mkdir -m 700 /var/closed && echo root > /var/closed/file", user="root")
    assert box.files.read("/var/closed/file") == "root\n"
    assert [each.name for each in box.files.list("/var/closed")] == ["file"]
    watch = box.files.watch_dir("/var/closed")
    box.files.write("/var/closed/new", "n")
    seen = [event.type for event in watch.get_new_events()]
    watch.stop()
    created = [FilesystemEventType.CREATE, FilesystemEventType.CHMOD, FilesystemEventType.WRITE]
    assert seen == created


def test_a_link_that_the_user_planted_does_not_lead_to_roots_files(box):
    box.commands.run("mkdir -m 700 /var/only && echo kept > /var/only/file", user="root")
    box.commands.run("ln -sfn /var/only ~/planted")
    with pytest.raises(SandboxException, match=r"403|permission denied"):
        box.files.write("planted/file", "overwritten")
    assert box.files.read("/var/only/file") == "kept\n"
    box.commands.run("ln -sfn /var/only /var/way", user="root")
    assert box.files.read("/var/way/file") == "kept\n", "root's own links lead on"


def test_an_empty_directory_has_the_size_of_a_block(box):
    box.files.make_dir("empty")
    assert box.files.get_info("empty").size == 4096
    (listed,) = [each for each in box.files.list(".") if each.name == "empty"]
    assert listed.size == 4096
