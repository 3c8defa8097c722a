"""Prompts with variables."""

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest
from paddock.domain.prompt_template import (
    BUILT_IN,
    LONGEST_VALUE,
    MOST_VARIABLES,
    check_no_secret,
    check_template,
    filled_in,
    size_filled_in,
)
from paddock.domain.task_wish import LONGEST_PROMPT, Check, TaskWish, checked

SECRET = "sk-0123456789abcdef"


@pytest.mark.proves("T17")
def test_what_was_given_is_in_its_place_and_is_not_looked_into_again():
    prompt = "Do {{title}}, {{ title }} in {{directory}}. {{ not this }} {single} {{}}"
    values = {"title": "{{directory}}", "directory": "/home/user/w"}
    said = filled_in(prompt, values)
    assert said == ("Do {{directory}}, {{directory}} in /home/user/w. {{ not this }} {single} {{}}")


@given(st.text())
def test_a_text_without_places_stays_as_it_is(text):
    assert filled_in(text.replace("{{", ""), {"a": "b"}) == text.replace("{{", "")


@pytest.mark.proves("T17")
def test_what_nobody_gave_is_refused_with_what_is_known():
    check_template("{{title}} {{task_id}}", {"title": "x", "unused": "y"})
    with pytest.raises(InvalidRequest, match="nobody gave: branch, not-a-name") as refused:
        check_template("{{title}} {{branch}} {{ not-a-name }}", {"title": "x"})
    for name in (*BUILT_IN, "title"):
        assert name in refused.value.remediation


@pytest.mark.parametrize("name", ["", "a b", "9a", "task_id", "x" * 65, "é"])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(InvalidRequest):
        check_template("x", {name: "y"})


def test_amounts_are_bounded():
    check_template("x", {f"v{n}": "y" for n in range(MOST_VARIABLES)})
    with pytest.raises(InvalidRequest, match="is the most"):
        check_template("x", {f"v{n}": "y" for n in range(MOST_VARIABLES + 1)})
    with pytest.raises(InvalidRequest, match="are the most"):
        check_template("x", {"v": "y" * (LONGEST_VALUE + 1)})


@pytest.mark.proves("T17")
@pytest.mark.parametrize("variables", [{"TOKEN": "x"}, {"a": SECRET}, {"a": f"Bearer {SECRET}"}])
def test_secrets_are_no_variables_and_no_message_tells_them(variables):
    with pytest.raises(InvalidRequest) as refused:
        check_no_secret(variables, {"TOKEN"}, [f"{SECRET}\n", "short", "", " "])
    assert SECRET not in f"{refused.value.message} {refused.value.remediation}"


def test_what_only_looks_like_a_secret_is_a_variable():
    check_no_secret({"title": "a short one", "token": "x"}, {"TOKEN"}, [SECRET, "short", " "])


@pytest.mark.proves("T17")
@pytest.mark.parametrize(("length", "is_refused"), [(11, False), (12, True)])
def test_short_secrets_cannot_be_guessed(length, is_refused):
    secret = "x" * length
    with pytest.raises(InvalidRequest) if is_refused else nullcontext():
        check_no_secret({"guess": secret}, set(), [secret])


@given(st.lists(st.sampled_from(["{{a}}", "{{ b\t}}", "{{c}}", "{{", "}}", "é", " ", "\ud800"])))
def test_its_size_is_known_before_it_is_made(parts):
    prompt, values = "".join(parts), {"a": "", "b": "ü{{a}}"}
    made = filled_in(prompt, values).encode("utf-8", "surrogatepass")
    assert size_filled_in(prompt, values) == len(made)


@pytest.mark.timeout(30)
def test_what_would_fill_the_memory_is_refused_before_it_is_made():
    value = {"a": "x" * LONGEST_VALUE}
    prompt = "{{a}}" * (LONGEST_PROMPT // 5)
    assert size_filled_in(prompt, value) > 13_000_000_000
    with pytest.raises(InvalidRequest, match="with its variables filled in has 13"):
        checked(TaskWish(prompt, "x", variables=value))
    checks = (Check("long", ("echo", "x" * LONGEST_VALUE)),)
    with pytest.raises(InvalidRequest, match="are the most"):
        checked(TaskWish("{{checks}}" * 100_000, "x", variables={}, checks=checks))
    checked(TaskWish("{{checks}}", "x", variables={}, checks=checks))


@pytest.mark.timeout(30)
def test_many_blanks_take_no_time():
    check_template("{{" + " " * LONGEST_PROMPT, {})
    assert filled_in("{{ \ta }}", {"a": "b"}) == "b"
