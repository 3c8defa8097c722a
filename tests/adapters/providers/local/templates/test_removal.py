"""Which builds may go."""

import pytest

from paddock.adapters.providers.local.templates import removal
from paddock.adapters.providers.local.templates.removal import Inventory
from paddock.domain.errors import Conflict

ROOT, SET_UP, ALONE = "root", "set-up", "alone"
BUILDS = {ROOT: ROOT, SET_UP: ROOT, ALONE: ALONE}


def test_with_a_recipe_goes_its_build_and_what_only_that_stood_on():
    inventory = Inventory(BUILDS, {"tools": SET_UP, "other": ALONE}, {})
    assert removal.of_recipe(inventory, "tools") == [SET_UP, ROOT]
    assert removal.of_recipe(inventory, "other") == [ALONE]


def test_a_recipe_that_was_never_built_takes_nothing_along():
    assert removal.of_recipe(Inventory(BUILDS, {"new": ""}, {}), "new") == []


@pytest.mark.parametrize(
    ("named", "users"),
    [({"tools": SET_UP, "plain": ROOT}, {}), ({"tools": SET_UP}, {ROOT: ["sandbox 1"]})],
    ids=["another recipe", "a sandbox"],
)
def test_a_root_that_something_else_needs_stays(named, users):
    assert removal.of_recipe(Inventory(BUILDS, named, users), "tools") == [SET_UP]


def test_a_root_that_another_build_stands_on_stays():
    inventory = Inventory({**BUILDS, "second": ROOT}, {"tools": SET_UP}, {})
    assert removal.of_recipe(inventory, "tools") == [SET_UP]


def test_a_build_that_two_recipes_lead_to_stays_with_the_other():
    inventory = Inventory(BUILDS, {"one": ALONE, "two": ALONE}, {ALONE: ["sandbox 1"]})
    assert removal.of_recipe(inventory, "one") == []


def test_one_in_use_says_by_what_and_not_by_everything():
    users = {ALONE: [f"sandbox {number}" for number in range(7)]}
    inventory = Inventory(BUILDS, {"other": ALONE}, users)
    with pytest.raises(Conflict) as caught:
        removal.of_recipe(inventory, "other")
    assert caught.value.message.startswith("the template 'other' is in use by sandbox 0, ")
    assert caught.value.message.endswith("sandbox 4 and 2 more")


def test_one_that_others_are_built_on_names_them():
    with pytest.raises(Conflict, match="what others are built on: tools"):
        removal.of_digest(Inventory(BUILDS, {"tools": SET_UP}, {}), ROOT)


def test_pruned_is_what_nothing_needs_and_its_root_with_it():
    assert removal.unneeded(Inventory(BUILDS, {}, {}), everything=False) == [SET_UP, ROOT, ALONE]
    named = Inventory(BUILDS, {"tools": SET_UP}, {})
    assert removal.unneeded(named, everything=False) == [ALONE]
    assert removal.unneeded(named, everything=True) == [SET_UP, ROOT, ALONE]


def test_nothing_in_use_is_pruned_nor_what_it_stands_on():
    used = Inventory(BUILDS, {}, {SET_UP: ["snapshot 1"]})
    assert removal.unneeded(used, everything=True) == [ALONE]
