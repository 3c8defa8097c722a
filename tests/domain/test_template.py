"""A template's name and the digest that decides what is built again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest
from paddock.domain.template import SourceKind, Template, TemplateSource

SOURCE = TemplateSource(SourceKind.DEBIAN, "trixie", ("git", "curl"))
BASE = Template("base", SOURCE, setup=("apt-get update", "npm ci"))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"env": (("A", "b"),)},
        {"user": "root"},
        {"workdir": "/srv"},
        {"hardened": True},
        {"runtime": "runsc"},
        {"snapshot_ignore": ("/var/cache",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_does_not_change_the_disk_does_not_change_the_digest(change):
    assert replace(BASE, **change).digest() == BASE.digest()


@pytest.mark.parametrize(
    "other",
    [
        replace(BASE, source=replace(SOURCE, kind=SourceKind.IMAGE)),
        replace(BASE, source=replace(SOURCE, reference="bookworm")),
        replace(BASE, source=replace(SOURCE, packages=("git",))),
        replace(BASE, source=replace(SOURCE, packages=("curl", "git"))),
        replace(BASE, setup=("npm ci", "apt-get update")),
        replace(BASE, setup=("apt-get update npm ci",)),
        replace(BASE, setup=()),
    ],
    ids=["kind", "reference", "packages", "package order", "order", "joined", "no setup"],
)
def test_what_changes_the_disk_changes_the_digest(other):
    assert other.digest() != BASE.digest()


@given(
    st.lists(st.text(min_size=1), max_size=4),
    st.lists(st.text(min_size=1), max_size=4),
)
def test_packages_and_setup_are_never_confused(packages, setup):
    one = Template("t", TemplateSource(SourceKind.TAR, "x", tuple(packages)), tuple(setup))
    other = Template("t", TemplateSource(SourceKind.TAR, "x", tuple(setup)), tuple(packages))
    assert (one.digest() == other.digest()) == (packages == setup)


def test_the_digest_is_the_same_in_every_process():
    assert BASE.digest() == "13ac53136c3fb6b940d35a2e03a55f63"


@pytest.mark.parametrize("name", ["a", "a1", "node-22", "python3.12_slim", "x" * 63])
def test_a_plain_name_is_accepted(name):
    assert replace(BASE, name=name).name == name


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", ".", "A", "a b", "a/b", "../a", "é", "x" * 64], ids=repr
)
def test_a_name_that_could_be_a_path_or_a_flag_is_refused(name):
    with pytest.raises(InvalidRequest, match="template name"):
        replace(BASE, name=name)


def test_a_name_with_a_newline_at_its_end_is_refused():
    with pytest.raises(InvalidRequest, match="template name"):
        replace(BASE, name="a\n")
