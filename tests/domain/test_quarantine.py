"""How odd something is, and who may go into what was set aside."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import Forbidden, InvalidRequest
from paddock.domain.quarantine import (
    ACTOR,
    WEIGHTS,
    OddnessConfig,
    Quarantine,
    Signs,
    check_evidence,
    check_open,
    in_words,
    is_too_odd,
    oddness,
)
from paddock.domain.team import GRANTS, Principal, Role

AMOUNTS = st.floats(0, 1e6)


def test_every_sign_has_its_weight_and_none_alone_is_enough():
    assert {each.name for each in fields(Signs)} == set(WEIGHTS)
    for name in WEIGHTS:
        assert oddness(Signs(**{name: 1e9})) == WEIGHTS[name].share < OddnessConfig().threshold


@given(st.builds(Signs, *[AMOUNTS] * len(WEIGHTS)), st.sampled_from(sorted(WEIGHTS)), AMOUNTS)
def test_more_of_a_sign_is_never_less_odd(signs, name, more):
    worse = replace(signs, **{name: getattr(signs, name) + more})
    assert 0 <= oddness(signs) <= oddness(worse) <= 1


@pytest.mark.proves("H8")
def test_it_adds_up_and_counts_only_when_it_lasts():
    assert oddness(Signs()) == 0
    signs = Signs(refused=40, dangers=2, restarts=2)
    assert oddness(signs) == pytest.approx(0.35 + 0.35 + 0.2 * 2 / 3, abs=0.001)
    said = in_words(signs)
    assert said == "40 connections refused, 2 dangerous commands, 2 restarts within an hour"
    config = OddnessConfig()
    assert not is_too_odd([0.9, 0.9], config)
    assert not is_too_odd([0.9, 0.7, 0.9], config)
    assert is_too_odd([0.1, 0.8, 0.9, 1.0], config)


@pytest.mark.parametrize("wrong", [{"threshold": 0}, {"threshold": 1.1}, {"readings": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidRequest):
        OddnessConfig(**wrong)


@pytest.mark.parametrize(
    ("actor", "role", "may"),
    [
        ("usr_1/tok_1", Role.ADMIN, True),
        ("usr_1/tok_1", Role.MEMBER, False),
        ("paddock/previews", Role.ADMIN, False),
        (ACTOR, Role.ADMIN, True),
    ],
)
def test_only_admins_go_into_what_was_set_aside(actor, role, may):
    who = Principal("tem_1", actor, role, GRANTS[role])
    check_open(None, "a", who)
    aside = Quarantine("usr_2", 1.0, "odd")
    if may:
        check_open(aside, "a", who)
    else:
        with pytest.raises(Forbidden, match="set aside by usr_2: odd"):
            check_open(aside, "a", who)


@pytest.mark.parametrize(
    ("actor", "role", "uses", "lets_go"),
    [
        ("usr_1/tok_1", Role.ADMIN, True, True),
        ("usr_1/tok_1", Role.MEMBER, False, False),
        ("paddock/retention", Role.ADMIN, False, True),
    ],
)
def test_evidence_is_for_admins_until_its_time_is_up(actor, role, uses, lets_go):
    who = Principal("tem_1", actor, role, GRANTS[role])
    aside = Quarantine("usr_2", 1.0, "odd")
    for letting_go, may in ((False, uses), (True, lets_go)):
        check_evidence(None, "s", who, letting_go=letting_go)
        if may:
            check_evidence(aside, "s", who, letting_go=letting_go)
            continue
        with pytest.raises(Forbidden, match="snapshot s is evidence"):
            check_evidence(aside, "s", who, letting_go=letting_go)
