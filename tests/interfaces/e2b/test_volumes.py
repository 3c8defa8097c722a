"""Volumes through the SDK: made, mounted in several sandboxes, read and written from outside."""

import io
import time
import urllib.error
import urllib.request

import pytest
from e2b import (
    AuthenticationException,
    SandboxException,
    VolumeException,
    VolumeNotFoundException,
)
from e2b.exceptions import VolumePathNotFoundException

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture
def volumes(e2b, live, monkeypatch):
    """The SDK's class, whose files are asked for at an address of their own."""
    monkeypatch.setenv("E2B_VOLUME_API_URL", live.url)
    return e2b.Volume


@pytest.fixture
def volume(volumes):
    made = volumes.create(f"v-{time.time_ns()}")
    yield made
    volumes.destroy(made.volume_id)


@pytest.fixture
def made(e2b):
    boxes = []

    def make(**options):
        boxes.append(e2b.Sandbox.create(timeout=60, **options))
        return boxes[-1]

    yield make
    for box in boxes:
        box.kill()


def test_they_are_made_listed_found_and_destroyed(volumes, volume):
    assert (volume.volume_id, volume.name) in [
        (each.volume_id, each.name) for each in volumes.list()
    ]
    again = volumes.connect(volume.volume_id)
    assert (again.name, again.token) == (volume.name, volume.token)
    with pytest.raises(VolumeException, match="belongs to volume"):
        volumes.create(volume.name)
    assert volumes.destroy(volume.volume_id) is True
    assert volumes.destroy(volume.volume_id) is False
    with pytest.raises(VolumeNotFoundException):
        volumes.connect(volume.volume_id)


def test_sandboxes_share_one_and_it_outlives_them(e2b, volumes, volume, made):
    one = made(volume_mounts={"/mnt/data": volume.name})
    two = made(volume_mounts={"/home/user/shared": volume})
    one.commands.run("mkdir /mnt/data/sub && echo from one > /mnt/data/sub/f")
    assert two.files.read("shared/sub/f") == "from one\n"
    two.files.write("/home/user/shared/g", "from two")
    assert one.commands.run("cat /mnt/data/g; stat -c %U:%G /mnt/data/g /mnt/data").stdout == (
        "from twouser:user\nuser:user\n"
    )
    mounts = one.get_info().volume_mounts
    assert [(each["name"], each["path"]) for each in mounts] == [(volume.name, "/mnt/data")]
    with pytest.raises(VolumeException, match="is mounted by"):
        volumes.destroy(volume.volume_id)
    one.kill()
    two.kill()
    three = made(volume_mounts={"/mnt/data": volume})
    assert three.files.read("/mnt/data/g") == "from two"


def test_pauses_snapshots_and_forks_mount_it_again(e2b, volume, made):
    box = made(volume_mounts={"/mnt/data": volume})
    box.files.write("/mnt/data/f", "then")
    box.pause(keep_memory=False)
    volume.write_file("/f", "meanwhile")
    box = e2b.Sandbox.connect(box.sandbox_id, timeout=60)
    assert box.files.read("/mnt/data/f") == "meanwhile"
    (fork,) = e2b.Sandbox.fork(box.sandbox_id, timeout=60)
    fork.files.write("/mnt/data/f", "forked")
    fork.kill()
    assert box.files.read("/mnt/data/f") == "forked"


def test_files_are_read_written_listed_and_removed_from_outside(volume, made):
    written = volume.write_file("/a.txt", "text", mode=0o600)
    assert (written.name, written.size, written.mode, written.uid) == ("a.txt", 4, 0o600, 1000)
    assert volume.read_file("/a.txt") == "text"
    volume.write_file("/a.txt", b"bytes")
    assert volume.read_file("a.txt", format="bytes") == b"bytes"
    assert volume.get_info("/a.txt").mode == 0o600
    volume.write_file("/large", io.BytesIO(b"x" * (5 << 20)))
    assert sum(map(len, volume.read_file("/large", format="stream"))) == 5 << 20
    assert volume.make_dir("/d/e", force=True).path == "/d/e"
    with pytest.raises(VolumePathNotFoundException):
        volume.make_dir("/none/e")
    volume.write_file("/d/e/f", "")
    assert [each.path for each in volume.list("/d", depth=2)] == ["/d/e", "/d/e/f"]
    changed = volume.update_metadata("/d/e/f", uid=0, gid=0, mode=0o644)
    assert (changed.uid, changed.gid, changed.mode) == (0, 0, 0o644)
    box = made(volume_mounts={"/mnt/data": volume})
    assert box.commands.run("stat -c %U /mnt/data/d/e/f").stdout == "root\n"
    assert volume.exists("/d/e/f")
    volume.remove("/d")
    assert not volume.exists("/d/e/f")
    for call in (volume.read_file, volume.remove, volume.get_info, volume.list):
        with pytest.raises(VolumePathNotFoundException):
            call("/gone")


def test_no_link_of_a_sandboxs_leads_out_of_it(volume, made):
    box = made(volume_mounts={"/mnt/data": volume})
    box.commands.run(
        "cd /mnt/data && ln -s /etc/passwd absolute && ln -s ../../../../../etc/passwd relative "
        "&& ln -s / root && ln -s /proc/1/environ magic && mkfifo pipe"
    )
    for path in ("/absolute", "/relative", "/root/etc/passwd", "/magic", "/../../etc/passwd"):
        with pytest.raises(VolumePathNotFoundException):
            volume.read_file(path)
    with pytest.raises(VolumeException, match="no file"):
        volume.read_file("/pipe")
    volume.write_file("/root/inside", "it is the volume's own root that is meant")
    assert box.files.exists("/mnt/data/inside")
    assert not box.files.exists("/inside")
    assert volume.get_info("/absolute").target == "/etc/passwd"


def test_what_cannot_be_is_said(e2b, volumes, volume):
    for mounts, why in (
        ({"/mnt/data": "no-such-volume"}, "no volume no-such-volume"),
        ({"/proc/x": volume.name}, "machine's own"),
        ({"relative": volume.name}, "no path to mount"),
        ({"/mnt": volume.name, "/mnt/data": volume.name}, "lies in another"),
    ):
        with pytest.raises(SandboxException, match=why):
            e2b.Sandbox.create(volume_mounts=mounts)
    with pytest.raises(VolumeException, match="no name of a volume"):
        volumes.create("not a name")


def test_another_team_has_none_of_it(live, volume, volumes):
    other = live.client(api_key=live.do(live.plane.team(f"volumes-{time.time_ns()}")).token)
    assert other.Volume.list() == []
    with pytest.raises(VolumeNotFoundException):
        other.Volume.connect(volume.volume_id)
    assert other.Volume.destroy(volume.volume_id) is False
    with pytest.raises(SandboxException, match="no volume"):
        other.Sandbox.create(volume_mounts={"/mnt/data": volume.name})
    theirs = other.Volume.create("theirs")
    with pytest.raises(AuthenticationException):
        volume.read_file("/f", token=theirs.token)
    other.Volume.destroy(theirs.volume_id)
    request = urllib.request.Request(f"{live.url}/volumecontent/{volume.volume_id}/dir?path=/")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10)


def test_secrets_are_kept_and_never_told(e2b, live):
    name = f"S-{time.time_ns()}"
    made = e2b.Secret.create(name, "hidden")
    assert (made.name, made.version) == (name.lower(), 1)
    assert e2b.Secret.update(made.secret_id, "other").version == 2
    assert e2b.Secret.get_info(made.name).secret_id == made.secret_id
    listed = e2b.Secret.list(limit=1)
    names = []
    while listed.has_next:
        names += [each.name for each in listed.next_items()]
    assert made.name in names
    with pytest.raises(Exception, match="already a secret"):
        e2b.Secret.create(name, "again")
    assert e2b.Secret.update(name, "more", metadata={"of": "billing"}).metadata == {"of": "billing"}
    assert e2b.Secret.update(name, "and more").metadata == {"of": "billing"}
    assert e2b.Secret.get_info(name).metadata == {"of": "billing"}
    assert e2b.Secret.update(name, "again", metadata={}).metadata == {}
    with pytest.raises(Exception, match="too many or too long"):
        e2b.Secret.create(f"{name}-m", "x", metadata={"a": "b" * 1025})
    assert e2b.Secret.destroy(made.secret_id) is True
    assert e2b.Secret.destroy(made.secret_id) is False
