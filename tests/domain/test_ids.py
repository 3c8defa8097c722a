"""Identifiers sort by time, are recognised, and fit into a host name."""

import re

from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.ids import dns_label, is_id, is_ulid, new_id, new_ulid

seconds = st.floats(0, 2**48 / 1000 - 1)


def test_a_new_id_has_its_prefix_and_is_recognised():
    made = new_id("sbx")
    assert made.startswith("sbx_")
    assert is_id(made)
    assert is_id(made, "sbx")
    assert not is_id(made, "tsk")


def test_ten_thousand_ids_of_one_moment_are_all_different():
    assert len({new_ulid(now=1.0) for _ in range(10_000)}) == 10_000


@given(seconds, seconds)
def test_ids_sort_by_the_millisecond_they_were_made_in(one, other):
    if int(one * 1000) < int(other * 1000):
        assert new_ulid(one) < new_ulid(other)


@given(seconds)
def test_every_id_is_a_dns_label_once_its_underscore_is_replaced(now):
    label = dns_label(f"sbx_{new_ulid(now)}")
    assert len(label) <= 63
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", label)


@given(st.text())
def test_hardly_any_text_is_an_id(text):
    assert not is_id(text) or re.fullmatch(r"[a-z]{3}_[0-9a-z]{26}", text)


def test_near_misses_are_not_ids():
    good = new_id("sbx")
    wrong = [good.upper(), good[:-1], good + "0", good.replace("_", "-"), "sbx_", ""]
    assert [text for text in wrong if is_id(text)] == []


def test_an_id_with_a_newline_at_its_end_is_not_an_id():
    assert not is_id(new_id("sbx") + "\n")
    assert not is_ulid(new_ulid() + "\n")


def test_a_ulid_is_an_id_without_its_prefix():
    made = new_id("sbx")
    assert is_ulid(made.removeprefix("sbx_"))
    assert not is_ulid(made)


def test_letters_that_are_easily_misread_do_not_occur():
    assert not any(is_id("sbx_" + letter * 26) for letter in "ilou")
