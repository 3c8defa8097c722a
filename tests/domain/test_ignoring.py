"""Rules for what a snapshot leaves out: each says where, and none covers the work."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest
from paddock.domain.ignoring import (
    MOST_RULES,
    Ignoring,
    Rule,
    Whole,
    check_whole,
    decide,
    parsed,
    places_of_work,
)
from paddock.domain.template import SourceKind, Template, TemplateSource

BASE = Template("base", TemplateSource(SourceKind.DEBIAN, "trixie"))


@pytest.mark.parametrize(
    ("text", "parent", "name"),
    [
        ("/home/user/.cache", ("home", "user"), ".cache"),
        ("/home/user/.cache/", ("home", "user"), ".cache"),
        ("/tmp/*", ("tmp",), "*"),
        ("/tmp/**", ("tmp",), "**"),
        ("/var/log/?.log", ("var", "log"), "?.log"),
        ("/srv", (), "srv"),
        ("/a b/ü", ("a b",), "ü"),
    ],
)
def test_a_rule_is_a_path_whose_last_part_may_be_a_pattern(text, parent, name):
    assert Rule.parse(text) == Rule(parent, name)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("out", "does not say where"),
        ("node_modules/", "does not say where"),
        ("**/out", "does not say where"),
        ("~/.cache", "does not say where"),
        ("./out", "does not say where"),
        ("", "does not say where"),
        ("/**/out", "before its last part"),
        ("/home/*/out", "before its last part"),
        ("/home/user/proj?/out", "before its last part"),
        ("/", "no plain path"),
        ("//", "no plain path"),
        ("/a//b", "no plain path"),
        ("/a/../b", "no plain path"),
        ("/a/.", "no plain path"),
        ("/a/b**", "inside a name"),
        ("/a\nb", "cannot be printed"),
        ("/a\0b", "cannot be printed"),
        ("/" + "a" * 1024, "longer than 1024"),
    ],
)
def test_what_names_no_place_is_refused_with_what_to_write(text, found):
    with pytest.raises(InvalidRequest) as caught:
        Rule.parse(text)
    assert found in caught.value.message
    assert caught.value.remediation


def test_a_bare_name_is_answered_with_a_path():
    with pytest.raises(InvalidRequest) as caught:
        Rule.parse("**/out")
    assert caught.value.remediation.endswith("such as /home/user/out")


@pytest.mark.parametrize(
    ("rule", "name", "meets"),
    [
        ("/d/*.tmp", "a.tmp", True),
        ("/d/*.tmp", ".tmp", True),
        ("/d/*.tmp", "a.TMP", False),
        ("/d/*", ".hidden", True),
        ("/d/**", "anything", True),
        ("/d/a?", "ab", True),
        ("/d/a?", "a", False),
        ("/d/[ab]", "[ab]", True),
        ("/d/[ab]", "a", False),
        ("/d/out", "outer", False),
    ],
)
def test_a_pattern_meets_names_of_one_directory(rule, name, meets):
    assert Rule.parse(rule).meets(name) is meets


@pytest.mark.proves("N1")
@pytest.mark.parametrize(
    "rule",
    [
        *("/home", "/home/user", "/home/*", "/home/u*", "/*", "/**", "/h???", "/home/user/*"),
        *("/home/user/?*", "/home/user/*?", "/home/user/?", "/home/user/??*", "/home/??"),
    ],
)
def test_a_rule_that_covers_the_home_is_refused(rule):
    with pytest.raises(InvalidRequest, match="/home/user, where the work is") as caught:
        replace(BASE, snapshot_ignore=(rule,))
    assert "/home/user/.cache" in caught.value.remediation


@pytest.mark.proves("N1")
def test_the_working_directory_and_the_home_of_root_are_covered_by_no_rule_either():
    with pytest.raises(InvalidRequest, match="/srv/app, where the work is"):
        replace(BASE, workdir="/srv/app", snapshot_ignore=("/srv/a*",))
    with pytest.raises(InvalidRequest, match="/root, where the work is"):
        replace(BASE, user="root", snapshot_ignore=("/root",))
    kept = ("/srv/app/node_modules", "/home/user/.cache", "/home/user/o*", "/home/other")
    assert replace(BASE, workdir="/srv/app", snapshot_ignore=kept).snapshot_ignore == kept
    assert places_of_work("app:app", "/w") == ("/home/app", "/root", "/w")
    assert places_of_work("", "") == ("/home/user", "/root")


@pytest.mark.parametrize(
    ("user", "rule"),
    [("1000", "/home/user"), ("1000:1000", "/home"), ("", "/*"), ("user", "/root"), ("0", "/root")],
)
def test_a_home_that_the_name_does_not_tell_is_covered_by_no_rule(user, rule):
    with pytest.raises(InvalidRequest, match="where the work is"):
        replace(BASE, user=user, snapshot_ignore=(rule,))


@pytest.mark.parametrize("workdir", ["work", "./work", "/srv/../work", "/.."])
def test_a_working_directory_is_a_plain_path_from_the_root(workdir):
    with pytest.raises(InvalidRequest, match="working directory"):
        replace(BASE, workdir=workdir)
    assert places_of_work("user", "/srv/../work")[-1] == "/work", "as an image may have it"


_PART = st.text("abc.-_ [", min_size=1, max_size=6).filter(lambda part: part not in (".", ".."))


@pytest.mark.proves("N1")
@given(st.lists(_PART, min_size=1, max_size=4), st.lists(_PART, min_size=1, max_size=5))
def test_a_plain_rule_covers_exactly_itself_and_what_is_below(place, directory):
    covers = Rule.parse("/" + "/".join(place)).covers("/" + "/".join(directory))
    assert covers is (directory[: len(place)] == place)


def test_there_are_not_too_many_rules():
    rules = [f"/var/cache/{number}" for number in range(MOST_RULES)]
    assert len(parsed(rules)) == MOST_RULES
    with pytest.raises(InvalidRequest, match=f"{MOST_RULES + 1} rules"):
        parsed([*rules, "/var/cache/more"])


@pytest.mark.proves("N1")
@pytest.mark.parametrize(
    ("wish", "whole"),
    [
        ({}, None),
        ({"asked": True}, Whole.ASKED),
        ({"automatic": True, "asked": True}, Whole.AUTOMATIC),
        ({"memory": True}, Whole.MEMORY),
        ({"able": False}, Whole.PROVIDER),
    ],
)
def test_in_doubt_a_snapshot_holds_everything(wish, whole):
    plain = {"asked": False, "automatic": False, "memory": False, "able": True}
    found = decide(("/tmp/*",), **(plain | wish))
    assert (found.rules, found.whole) == (("/tmp/*",), whole)
    assert found.applied == (() if whole else ("/tmp/*",))
    assert decide((), **(plain | wish)) == Ignoring()


def test_memory_and_rules_exclude_each_other():
    check_whole(())
    with pytest.raises(InvalidRequest, match="with memory"):
        check_whole(("/tmp/*",))
