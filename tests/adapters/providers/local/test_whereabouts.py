"""Finding the work on a disk: what its names lead to counts as much as the names."""

from pathlib import Path

import pytest

from paddock.adapters.providers.local.leaving_out import takes_all
from paddock.adapters.providers.local.whereabouts import places_on_disk
from paddock.domain.ignoring import parsed


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, Path]:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for layer in (upper, lower):
        (layer / "home").mkdir(parents=True)
    return upper, lower


def places(layers: tuple[Path, Path]) -> set[str]:
    return set(places_on_disk(layers, "user", "/home/user"))


def test_a_home_that_is_a_link_counts_where_it_leads(layers):
    upper, lower = layers
    (lower / "home" / "user").symlink_to("/data/people/user")
    assert places(layers) >= {"/home/user", "/data/people/user"}
    (upper / "data" / "people" / "user").mkdir(parents=True)
    (upper / "data" / "people" / "user" / "work.py").touch()
    found = places_on_disk(layers, "user", "/home/user")
    assert takes_all(upper.parent, parsed(["/data/people/user/*"]), found)
    assert takes_all(upper.parent, parsed(["/data/people"]), found)


def test_links_on_the_way_and_relative_ones_are_followed(layers):
    upper, lower = layers
    (lower / "home").rmdir()
    (lower / "home").symlink_to("srv/../var/home")
    (upper / "home").rmdir()
    (upper / "var" / "home").mkdir(parents=True)
    (upper / "var" / "home" / "user").symlink_to("../lib/user")
    assert "/var/lib/user" in places(layers)


def test_the_upper_layer_decides(layers):
    upper, lower = layers
    (lower / "home" / "user").symlink_to("/elsewhere")
    (upper / "home" / "user").mkdir()
    assert "/elsewhere" not in places(layers)


@pytest.mark.parametrize("target", ["/home/user", "user", "/home/other/../user", "x" * 300, "/"])
def test_links_that_lead_nowhere_end(layers, target):
    (layers[0] / "home" / "user").symlink_to(target)
    assert "/home/user" in places(layers)


def test_a_home_that_the_disk_names_counts_too(layers):
    (layers[1] / "etc").mkdir()
    (layers[1] / "etc" / "passwd").write_text("user:x:1000:1000::/srv/user:/bin/sh\n")
    (layers[1] / "srv").symlink_to("/mnt/disk")
    assert places(layers) >= {"/srv/user", "/mnt/disk/user"}
