"""What is added to root file systems of all kinds, and what is left alone."""

import os
from pathlib import Path

import pytest

from paddock.adapters.providers.local.templates.contract import fulfil


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    (path / "etc").mkdir(parents=True)
    return path


def test_an_empty_root_gets_users_a_home_and_what_is_mounted_over(tmp_path: Path) -> None:
    root = tmp_path / "empty"
    root.mkdir()
    fulfil(root)
    for name in ("proc", "sys", "dev", "run", "tmp", "var/tmp", "home/user/.local/bin", "root"):
        assert (root / name).is_dir(), name
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "etc/passwd").read_text() == (
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
    )
    assert (root / "etc/group").read_text() == "root:x:0:\nuser:x:1000:\n"
    assert not (root / "etc/shadow").exists()
    assert not (root / "etc/sudoers.d").exists()
    home = (root / "home/user").stat()
    assert (home.st_uid, home.st_gid, home.st_mode & 0o7777) == (1000, 1000, 0o755)


def test_doing_it_twice_changes_nothing(root: Path) -> None:
    fulfil(root)
    before = (root / "etc/passwd").read_text()
    (root / "home/user").chmod(0o700)
    fulfil(root)
    assert (root / "etc/passwd").read_text() == before
    assert (root / "home/user").stat().st_mode & 0o777 == 0o700


def test_a_user_of_that_name_stays_as_it_is(root: Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1001:1001::/u:/bin/sh\n")
    fulfil(root)
    assert (root / "etc/passwd").read_text().count("user:") == 1


def test_a_taken_number_gets_a_second_name(root: Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/n:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nnode:x:1000:\n")
    fulfil(root)
    assert (root / "etc/passwd").read_text().splitlines()[-1].startswith("user:x:1000:1000:")
    assert (root / "etc/group").read_text() == "root:x:0:\nnode:x:1000:\n"


def test_shadow_keeps_its_mode_and_a_file_without_a_last_newline_its_last_line(root: Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh")
    (root / "etc/shadow").write_text("root:*:19000::::::")
    (root / "etc/shadow").chmod(0o600)
    fulfil(root)
    assert (root / "etc/passwd").read_text().splitlines()[0] == "root:x:0:0::/root:/bin/sh"
    assert (root / "etc/shadow").read_text().splitlines()[1].startswith("user:*:")
    assert (root / "etc/shadow").stat().st_mode & 0o777 == 0o600


def test_sudo_is_allowed_without_a_password_where_there_is_sudo(root: Path) -> None:
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/sudo").write_text("")
    (root / "usr/bin/bash").write_text("")
    (root / "etc/sudoers.d").mkdir()
    fulfil(root)
    rule = root / "etc/sudoers.d/paddock"
    assert rule.read_text() == "#1000 ALL=(ALL:ALL) NOPASSWD: ALL\n"
    assert rule.stat().st_mode & 0o777 == 0o440
    assert (root / "etc/passwd").read_text().endswith(":/bin/bash\n")


def test_the_home_begins_with_the_images_skeleton(root: Path) -> None:
    (root / "etc/skel").mkdir()
    (root / "etc/skel/.bashrc").write_text("alias ll='ls -l'\n")
    (root / "etc/skel/link").symlink_to("/etc/shadow")
    fulfil(root)
    assert (root / "home/user/.bashrc").read_text() == "alias ll='ls -l'\n"
    assert (root / "home/user/.bashrc").stat().st_uid == 1000
    assert not os.path.lexists(root / "home/user/link")


@pytest.mark.parametrize("linked", ["etc", "home", "etc/passwd", "etc/sudoers.d", "var"])
def test_links_out_of_the_root_are_never_followed(tmp_path: Path, linked: str) -> None:
    """A hostile image's /etc may be a link to the host's."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/sudo").write_text("")
    if linked.startswith("etc/"):
        (root / "etc").mkdir()
    target = outside / linked
    if linked == "etc/passwd":
        target.parent.mkdir(parents=True)
        target.write_text("the host's\n")
    else:
        target.mkdir(parents=True)
    (root / linked).symlink_to(target)
    before = sorted(str(path) for path in outside.rglob("*"))
    fulfil(root)
    assert sorted(str(path) for path in outside.rglob("*")) == before
    if linked == "etc/passwd":
        assert target.read_text() == "the host's\n"


def test_a_pipe_in_the_place_of_a_file_does_not_block(root: Path) -> None:
    os.mkfifo(root / "etc/passwd")
    os.mkfifo(root / "etc/group")
    fulfil(root)
    assert (root / "etc/passwd").is_fifo()
