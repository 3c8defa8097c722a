"""Values taken out of streams, however they are cut."""

import base64
import itertools
import json
import re
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paddock.domain.broker.forms import forms
from paddock.domain.egress.deciding import Decision
from paddock.gateway.brokering import Brokering
from paddock.gateway.fence import Fence
from paddock.gateway.injecting import Head
from paddock.gateway.journal import Journal
from paddock.gateway.outside import Outside
from paddock.gateway.protocol import Credential
from paddock.gateway.redacting import Matcher, Redactor, fitted
from paddock.gateway.target import Target

VALUE, SHOWN = b"abcabcabd-0123456789", b"pdk-KEY-0123456789abcdef0123456789abcdef"


def through(parts: list[bytes], *, same_length: bool, needles=None) -> bytes:
    matcher = Matcher({VALUE: SHOWN} if needles is None else needles)
    redactor = Redactor(matcher, same_length=same_length)
    return b"".join(map(redactor.feed, parts)) + redactor.release()


@pytest.mark.proves("K9")
@given(st.lists(st.integers(0, 80), max_size=12), st.booleans(), st.binary(max_size=20))
def test_a_value_is_found_whatever_the_borders(cuts: list[int], same_length: bool, other: bytes):
    text = b"abcabc" + VALUE + other + VALUE[:-1] + b" abcabca" + VALUE + b"abcabcab"
    borders = [0, *sorted(cuts), len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(borders)]
    shown = fitted(SHOWN, len(VALUE)) if same_length else SHOWN
    assert through(parts, same_length=same_length) == text.replace(VALUE, shown)


def test_lines_go_on_at_once_and_the_rest_when_enough_has_followed():
    redactor = Redactor(Matcher({VALUE: SHOWN}), same_length=False)
    assert redactor.feed(b"data: tick\n\n") == b"data: tick\n\n"
    assert redactor.feed(b"data: abc") == b""
    assert redactor.feed(b"x" * 40) == b"data: abc" + b"x" * 21
    assert redactor.release() == b"x" * 19
    assert redactor.feed(b"frame" * 9 + b"more", settled=45) == b"frame" * 9


def sizes(parts: list[bytes], matcher: Matcher) -> list[tuple[int, bool]]:
    """What a client can see of each piece: how much of it comes at once, and whether some waits."""
    redactor = Redactor(matcher, same_length=True)
    return [(len(redactor.feed(part)), redactor.holds) for part in parts]


@pytest.mark.proves("K9")
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "\n", " "])), max_size=8),
    st.integers(1, len(VALUE) - 1),
    st.sampled_from([base64.b64encode, bytes.hex, bytes]),
)
def test_what_comes_when_is_the_same_for_right_and_for_wrong_guesses(pieces, right: int, written):
    """Issue: the redactor is an oracle."""
    matcher = Matcher(dict.fromkeys(forms(VALUE), SHOWN))
    said = written(VALUE)
    guess = said.encode() if isinstance(said, str) else said

    def stream(guessed: bytes) -> list[bytes]:
        wrong = b"~" * (len(guess) - right)
        between = [b"%b%b" % (guessed[:size] or wrong[:size], end.encode()) for size, end in pieces]
        return [*between, guessed + wrong[:1], guessed, b"", guessed[:1]]

    good, bad = guess[:right], b"\x07" * right
    assert sizes(stream(good), matcher) == sizes(stream(bad), matcher)


def test_a_value_that_was_not_put_in_is_not_looked_for():
    """Issue: the redactor is an oracle. Values of other hosts, or of none, confirm no guess."""
    fence = Fence("sbx_1", Outside(), Journal())
    here = Credential("A", "pdk-A", ["a.example"], "placeholder", value="the-value-of-a")
    there = Credential("B", "pdk-B", ["b.example"], "header", value="the-value-of-b", header="X")
    fence.desk.take([here, there], "1")
    brokering = Brokering(fence, Target("a.example", "", 443))

    def answer(head: Head) -> bytes:
        brokering.rewritten(head, Decision(allowed=True))
        said = b"the-value-of-a the-value-of-b"
        return brokering.answers.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n" + said)

    assert answer(Head("GET", b"/", ())).endswith(b"\r\n\r\nthe-value-of-a the-value-of-b")
    put_in = Head("GET", b"/", ((b"X-Key", b"pdk-A"),))
    assert answer(put_in).endswith(b"\r\n\r\npdk-A********* the-value-of-b")
    assert answer(Head("GET", b"/", ())).endswith(b"\r\n\r\npdk-A********* the-value-of-b")


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
    values = [f"{number:04d}-value-".encode() * 1365 for number in range(12)]
    matcher = Matcher({form: b"*" for value in values for form in forms(value)})
    redactor = Redactor(matcher, same_length=False)
    noise = b"0" * 65536
    for _ in range(20):
        redactor.feed(b"data: " + noise)
    assert (redactor.feed(values[7] + b".") + redactor.release()).endswith(b"*.")


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


def test_what_has_no_placeholder_may_come_back():
    fence = Fence("sbx_1", Outside(), Journal())
    brokering = Brokering(fence, Target("a.example", "", 443))
    told = Credential("X", "", ["a.example"], "header", value="production", header="X-Environment")
    fence.desk.take([replace(told, format="{}", own=True)], "1")
    brokering.rewritten(Head("GET", b"/", ()), Decision(allowed=True))
    said = b"HTTP/1.1 200 OK\r\nX: production\r\nContent-Length: 0\r\n\r\n"
    assert brokering.answers.feed(said) == said


def test_what_was_put_in_before_is_still_taken_out():
    fence = Fence("sbx_1", Outside(), Journal())
    brokering = Brokering(fence, Target("a.example", "", 443))
    first = Credential("KEY", "pdk-KEY-1", ["a.example"], "header", value="the-first-value")
    first = replace(first, header="X-Key", format="{}")
    second = replace(first, value="the-second-value")
    for each in (first, second):
        fence.desk.take([each], each.value)
        brokering.rewritten(Head("GET", b"/", ()), Decision(allowed=True))
    said = b"X: the-first-value the-second-value\r\nContent-Length: 0\r\n\r\n"
    got = brokering.answers.feed(b"HTTP/1.1 200 OK\r\n" + said)
    assert b"X: pdk-KEY-1 pdk-KEY-1\r\n" in got
    held = fence.desk.held
    assert [each.value for each in held.of_host("a.example", 443)] == ["the-second-value"]
    assert held.of_host("a.example", 80) == held.of_host("b.example", 443) == []
    assert "the-second-value" not in repr(second)
