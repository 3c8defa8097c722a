"""Removing trees that somebody else may still change."""

import os
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import trees

LONGEST_PATH = 4096


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    return tmp_path / "precious"


def test_a_link_in_the_place_of_the_tree_is_not_followed(tmp_path: Path, precious: Path) -> None:
    """As between a removal that failed, because something was added, and the next way to do it."""
    place = tmp_path / "place"
    place.symlink_to(precious)
    with pytest.raises(NotADirectoryError):
        trees._remove_by_flattening(place)
    assert (precious / "file").exists()


def test_links_inside_go_and_what_they_lead_to_stays(tmp_path: Path, precious: Path) -> None:
    inner = tmp_path / "place" / "a" / "b"
    inner.mkdir(parents=True)
    for directory in (inner, inner.parent, inner.parent.parent):
        (directory / "link").symlink_to(precious)
        (directory / "file").touch()
        os.mkfifo(directory / "pipe")
    trees._remove_by_flattening(tmp_path / "place")
    assert not (tmp_path / "place").exists()
    assert (precious / "file").exists()


def test_a_tree_deeper_than_any_path_goes(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(LONGEST_PATH // len("d/") + 100):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    trees._remove_by_flattening(tmp_path / "d")
    assert not (tmp_path / "d").exists()
