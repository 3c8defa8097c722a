"""Names and places of volumes."""

import pytest

from paddock.domain.errors import Conflict, InvalidRequest, NotFound
from paddock.domain.volume import (
    MOST_MOUNTS,
    VolumeRecord,
    VolumeState,
    check_mount_paths,
    check_size,
    check_volume_name,
    usable,
)


@pytest.mark.parametrize("name", ["a", "datasets", "My_data.v2", "0-9"])
def test_names_that_can_be(name):
    assert check_volume_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a.", "a b", "a/b", "vol_x", "ä", "x" * 64])
def test_names_that_cannot(name):
    with pytest.raises(InvalidRequest):
        check_volume_name(name)


@pytest.mark.parametrize("paths", [["/mnt"], ["/data", "/data2"], ["/home/user/.cache/pip"]])
def test_paths_that_can_be(paths):
    check_mount_paths(paths)


@pytest.mark.parametrize(
    "paths",
    [
        ["/"],
        ["relative"],
        [""],
        ["/a/"],
        ["//a"],
        ["/a//b"],
        ["/a/../b"],
        ["/a/./b"],
        ["/a\n"],
        ["/proc"],
        ["/sys/x"],
        ["/dev/shm"],
        ["/run/paddock"],
        ["/a", "/a"],
        ["/a", "/a/b"],
        ["/" + "x" * 1024],
        [f"/{number}" for number in range(MOST_MOUNTS + 1)],
    ],
)
def test_paths_that_cannot(paths):
    with pytest.raises(InvalidRequest) as caught:
        check_mount_paths(paths)
    assert caught.value.remediation


def test_a_size_is_at_least_so_much():
    assert check_size(None) is None
    assert check_size(16) == 16
    with pytest.raises(InvalidRequest):
        check_size(15)


def test_only_one_that_is_ready_can_be_used():
    made = VolumeRecord("vol_1", "team", "v", "local", VolumeState.READY, 0.0)
    assert usable(made, "v") is made
    with pytest.raises(NotFound):
        usable(None, "v")
    for state, error in ((VolumeState.CREATING, Conflict), (VolumeState.DELETING, NotFound)):
        with pytest.raises(error):
            usable(VolumeRecord("vol_1", "team", "v", "local", state, 0.0), "v")
