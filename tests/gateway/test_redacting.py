"""Values taken out of streams, however they are cut."""

import base64
import itertools
import json
import re
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gateway.credentials import Credentials, forms
from paddock.gateway.protocol import Credential
from paddock.gateway.redacting import Matcher, Redactor, fitted

VALUE, SHOWN = b"abcabcabd-0123456789", b"pdk-KEY-0123456789abcdef0123456789abcdef"


def through(parts: list[bytes], *, same_length: bool, needles=None) -> bytes:
    matcher = Matcher({VALUE: SHOWN} if needles is None else needles)
    redactor = Redactor(matcher, same_length=same_length)
    return b"".join(map(redactor.feed, parts)) + redactor.end()


@pytest.mark.proves("K9")
@given(st.lists(st.integers(0, 80), max_size=12), st.booleans(), st.binary(max_size=20))
def test_a_value_is_found_whatever_the_borders(cuts: list[int], same_length: bool, other: bytes):
    text = b"abcabc" + VALUE + other + VALUE[:-1] + b" abcabca" + VALUE + b"abcabcab"
    borders = [0, *sorted(cuts), len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(borders)]
    shown = fitted(SHOWN, len(VALUE)) if same_length else SHOWN
    assert through(parts, same_length=same_length) == text.replace(VALUE, shown)


def test_nothing_is_held_back_that_could_not_be_a_value():
    redactor = Redactor(Matcher({VALUE: SHOWN}), same_length=False)
    assert redactor.feed(b"data: tick\n\n") == b"data: tick\n\n"
    assert redactor.feed(b"data: abc") == b"data: "
    assert redactor.feed(b"xyz") == b"abcxyz"


@given(st.lists(st.integers(0, 120), max_size=12), st.data())
def test_of_values_within_values_the_first_and_longest_counts(cuts: list[int], data):
    inner, head, outer = b"0123456789abcdef0123", b"0123456789abcdef", b"x-0123456789abcdef0123-y"
    other = b"0123456789abcdef-another"
    needles = {inner: b"<inner>", outer: b"<outer>", head: b"<head>", other: b"<other>"}
    pieces = st.sampled_from([*needles, outer[:-1], inner[:-2], b"x-", b"plain", b"0"])
    text = b" ".join(data.draw(st.lists(pieces, max_size=6)))
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(borders)]
    longest_first = sorted(needles, key=len, reverse=True)
    pattern = re.compile(b"|".join(map(re.escape, longest_first)))
    expected = pattern.sub(lambda hit: needles[hit[0]], text)
    assert through(parts, same_length=False, needles=needles) == expected


def test_many_long_values_take_no_longer_than_short_ones():
    values = [f"{number:04d}-value-".encode() * 1365 for number in range(40)]
    matcher = Matcher({form: b"*" for value in values for form in forms(value)})
    redactor = Redactor(matcher, same_length=False)
    noise = b"0" * 65536
    for _ in range(20):
        redactor.feed(b"data: " + noise)
    assert redactor.feed(values[7] + b".").endswith(b"*.")


def test_no_needles_are_no_work():
    assert through([b"a", b"b"], same_length=True, needles={}) == b"ab"


@given(st.text(min_size=8, max_size=60), st.binary(max_size=5), st.binary(max_size=5))
def test_every_form_of_a_value_is_known(value: str, before: bytes, after: bytes):
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        return
    known = forms(raw)
    assert raw in known
    assert json.dumps(value)[1:-1].encode() in known
    assert urllib.parse.quote(value, safe="").encode() in known
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(before + raw + after)
        assert any(form in whole for form in known if len(form) >= 8), (whole, known)


def test_what_was_a_value_before_is_still_taken_out():
    first = Credential("KEY", "pdk-KEY-1", ["a.example"], "header", value="the-first-value")
    second = Credential("KEY", "pdk-KEY-1", ["a.example"], "header", value="the-second-value")
    held = Credentials.of([second], Credentials.of([first], Credentials()))
    assert {b"the-first-value", b"the-second-value"} <= set(held.needles)
    assert [each.value for each in held.of_host("a.example", 443)] == ["the-second-value"]
    assert held.of_host("a.example", 80) == held.of_host("b.example", 443) == []
    assert "the-second-value" not in repr(second)
