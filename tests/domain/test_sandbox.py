"""The sandbox's state machine and the limits it lives under."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import Conflict, InvalidRequest
from paddock.domain.sandbox import TRANSITIONS, Resources, SandboxState, transition

S = SandboxState
PAIRS = [(current, target) for current in S for target in S]
# Written out a second time on purpose: the diagram in the architecture, not a copy of the table.
DIAGRAM = {
    "creating": "running failed deleting",
    "running": "paused stopped failed deleting",
    "paused": "running stopped failed deleting",
    "stopped": "running archived failed deleting",
    "archived": "running stopped failed deleting",
    "failed": "deleting",
    "deleting": "deleted failed",
    "deleted": "",
}
FLOORS: dict[str, Any] = {"cpus": 0.05, "memory_mib": 16, "disk_mib": 16, "pids": 8}


@pytest.mark.proves("L3")
@pytest.mark.parametrize(("current", "target"), PAIRS, ids=str)
def test_a_transition_is_allowed_exactly_where_the_diagram_has_an_arrow(current, target):
    if target in DIAGRAM[current].split():
        assert transition("sbx_1", current, target) is target
        return
    with pytest.raises(Conflict) as refused:
        transition("sbx_1", current, target)
    assert f"sbx_1 is {current} and cannot become {target}" in refused.value.message


@pytest.mark.proves("L3")
def test_every_state_is_in_the_table_and_only_deleted_is_final():
    assert set(TRANSITIONS) == set(S)
    assert [state for state, allowed in TRANSITIONS.items() if not allowed] == [S.DELETED]


@pytest.mark.proves("L3")
def test_every_state_can_be_reached_from_creating_and_can_come_to_its_end():
    def reach(start: SandboxState) -> set[SandboxState]:
        seen, todo = {start}, [start]
        while todo:
            for after in TRANSITIONS[todo.pop()] - seen:
                seen.add(after)
                todo.append(after)
        return seen

    assert reach(S.CREATING) == set(S)
    assert all(S.DELETED in reach(state) for state in S)


def test_a_refused_transition_says_what_is_possible_instead():
    with pytest.raises(Conflict) as refused:
        transition("sbx_1", S.ARCHIVED, S.PAUSED)
    possible = "deleting, failed, running, stopped"
    assert refused.value.remediation == f"from archived it can become: {possible}"


def test_nothing_is_possible_after_deletion():
    with pytest.raises(Conflict) as refused:
        transition("sbx_1", S.DELETED, S.RUNNING)
    assert "it is gone" in refused.value.remediation


@pytest.mark.proves("P13")
@pytest.mark.parametrize("name", FLOORS)
def test_a_limit_may_equal_its_floor_but_not_go_below_it(name):
    assert getattr(Resources(**{name: FLOORS[name]}), name) == FLOORS[name]
    with pytest.raises(InvalidRequest, match=name):
        Resources(**{name: FLOORS[name] * 0.99})


@pytest.mark.parametrize("name", FLOORS)
@pytest.mark.parametrize("value", [0, -1, True, None, "512"], ids=repr)
def test_a_limit_that_is_no_sensible_number_is_invalid(name, value):
    with pytest.raises(InvalidRequest, match=name):
        Resources(**{name: value})


@pytest.mark.parametrize("name", FLOORS)
@pytest.mark.parametrize("value", [math.nan, math.inf], ids=repr)
def test_a_limit_that_is_not_finite_is_invalid(name, value):
    with pytest.raises(InvalidRequest, match=name):
        Resources(**{name: value})


@pytest.mark.proves("P13")
@pytest.mark.parametrize("name", FLOORS)
def test_asking_for_more_than_there_is_names_the_limit_that_was_exceeded(name):
    most = Resources(cpus=4, memory_mib=4096, disk_mib=4096, pids=512)
    most.check_within(most)
    too_much = Resources(**{**{n: getattr(most, n) for n in FLOORS}, name: getattr(most, name) + 1})
    with pytest.raises(InvalidRequest, match=f"^{name} of "):
        too_much.check_within(most)


limits = st.builds(
    Resources,
    cpus=st.floats(0.05, 512, allow_nan=False),
    memory_mib=st.integers(16, 1 << 24),
    disk_mib=st.integers(16, 1 << 24),
    pids=st.integers(8, 1 << 20),
)


@given(limits, limits)
def test_resources_fit_exactly_when_every_single_limit_fits(asked, most):
    fits = all(getattr(asked, name) <= getattr(most, name) for name in FLOORS)
    try:
        asked.check_within(most)
    except InvalidRequest:
        assert not fits
    else:
        assert fits
