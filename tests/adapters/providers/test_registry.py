"""A provider is registered in one line, found by name and shown in one table."""

import sys
from dataclasses import fields

import pytest

from paddock.adapters.providers import registry
from paddock.domain.errors import Broken, NotFound
from paddock.ports.provider import Capabilities, Isolation, PauseKind

SMALL = {"b": "collections:OrderedDict", "a": "collections:Counter"}


@pytest.mark.proves("P3")
def test_one_line_is_enough_to_be_listed_and_loaded():
    assert registry.names(SMALL) == ("a", "b")
    assert registry.load("b", SMALL).__name__ == "OrderedDict"


@pytest.mark.proves("P3")
def test_every_registered_provider_can_be_loaded():
    assert all(callable(registry.load(name)) for name in registry.names())


@pytest.mark.proves("P3")
def test_asking_for_an_unknown_provider_lists_the_known_ones():
    with pytest.raises(NotFound, match="no provider 'c'; registered are: a, b") as caught:
        registry.load("c", SMALL)
    assert "registry.py" in caught.value.remediation


@pytest.mark.parametrize("path", ["no.such.module:Provider", "collections:NoSuchThing", "", "a:"])
def test_a_provider_that_does_not_load_says_from_where(path):
    with pytest.raises(Broken, match="provider x could not be loaded"):
        registry.load("x", {"x": path})


def test_nothing_is_imported_before_it_is_asked_for():
    lazy = {"lazy": "this:s"}
    registry.names(lazy)
    assert "this" not in sys.modules


@pytest.mark.proves("P4")
def test_the_table_has_a_line_for_every_capability_there_is():
    first_cells = registry.capability_table({}).splitlines()[2:]
    assert len(first_cells) == len(fields(Capabilities))
    assert set(registry._ROWS) == {field.name for field in fields(Capabilities)}


@pytest.mark.proves("P4")
def test_the_table_says_what_the_capabilities_say():
    able = Capabilities(
        isolation=Isolation.MICROVM,
        pause=PauseKind.MEMORY,
        snapshot=True,
        max_lifetime_s=5400,
        max_ports=4,
    )
    table = registry.capability_table(
        {"plain": Capabilities(isolation=Isolation.NONE), "vendor": able}
    )
    lines = table.splitlines()
    assert lines[0] == "|  | plain | vendor |"
    assert lines[1] == "| --- | --- | --- |"
    assert "| isolation | none | microvm |" in lines
    assert "| pause keeps | – | memory |" in lines
    assert "| snapshot | – | yes |" in lines
    assert "| longest lifetime | any | 1.5 h |" in lines
    assert "| most ports | any | 4 |" in lines
