"""Values that are masked before anything is kept: in every form, however what holds them is cut."""

import base64
import html
import itertools
import json
import random
import time
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.broker.forms import forms, in_names
from paddock.domain.broker.masking import Mask, NameMask, secret_values, strings_in
from paddock.domain.conversation import LONGEST_LINE
from paddock.services.task_reading import read_lines

VALUE = "sk-T0ken/with+all=of&<it>'\" é 0123456789"
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nAbCdEfGhIjKlMnOpQrSt\n-----END KEY-----"
MASK = Mask({VALUE: "(KEY)", PEM: "(PEM)"})


def go(text: str) -> str:
    said = json.dumps(text, ensure_ascii=False)[1:-1]
    return said.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def dotnet(text: str) -> str:
    escaped = "\"&'+<>`"
    plain = [" " <= c <= "~" and c not in escaped for c in text]
    return "".join(c if stays else f"\\u{ord(c):04X}" for c, stays in zip(text, plain, strict=True))


WRITERS = {
    "as it is": lambda text: text,
    "json": lambda text: json.dumps(text)[1:-1],
    "json of php": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "json of go": go,
    "json of .net": dotnet,
    "json, every letter": lambda text: "".join(f"\\u{ord(c):04x}" for c in text),
    "json, upper": lambda text: "".join(f"\\u{ord(c):04X}" for c in text),
    "url": lambda text: urllib.parse.quote(text, safe=""),
    "path": urllib.parse.quote,
    "form": urllib.parse.quote_plus,
    "url, lower": lambda text: "".join(
        c
        if (c.isalnum() and c.isascii()) or c in "-_.~"
        else "".join(f"%{b:02x}" for b in c.encode())
        for c in text
    ),
    "html": html.escape,
    "html, decimal": lambda text: html.escape(text).replace("&#x27;", "&#39;"),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, later": lambda text: base64.b64encode(b"x:" + text.encode()).decode(),
    "base64 of urls": lambda text: base64.urlsafe_b64encode(b"y" + text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "html, every letter": lambda text: "".join(f"&#{ord(c)};" for c in text),
    "html, every letter in hex": lambda text: "".join(f"&#x{ord(c):x};" for c in text),
    "html, whatever is no letter": lambda text: "".join(
        c if c.isalnum() and c.isascii() else f"&#x{ord(c):X};" for c in text
    ),
    "hex, spaced": lambda text: text.encode().hex(" "),
    "HEX, with colons": lambda text: text.encode().hex(":").upper(),
    "hex of C": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "a list of bytes": lambda text: str(list(text.encode()))[1:-1],
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "base32, later": lambda text: base64.b32encode(b"xyz" + text.encode()).decode().lower(),
    "base64, twice": lambda text: _twice(b"", text),
    "base64, twice, later": lambda text: _twice(b"user:", text),
}


def _twice(before: bytes, text: str) -> str:
    return base64.b64encode(b"{" + base64.b64encode(before + text.encode())).decode()


@pytest.mark.proves("K9")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_value_is_masked_however_it_is_written(writer: str):
    said = WRITERS[writer](VALUE)
    line = f'{{"text": "before {said} after"}}'.encode()
    masked = MASK.raw(line)
    assert len(masked) == len(line)
    assert said.encode() not in masked
    assert b"(KEY)" in masked
    assert masked.startswith(b'{"text": "before ')
    assert said not in MASK.text(f"x {said} y")
    assert MASK.told({said: [{"deep": (said, 7, None)}]}) != {said: [{"deep": (said, 7, None)}]}


@pytest.mark.proves("K9")
@given(st.text(min_size=6, max_size=40), st.sampled_from(sorted(WRITERS)))
def test_any_value_is_known_in_any_form(value: str, writer: str):
    try:
        said = WRITERS[writer](value).encode()
    except UnicodeEncodeError:
        return
    if writer.startswith("json") and any(ord(c) > 0xFFFF or ord(c) < 32 for c in value):
        return  # the writers of this test know no pairs
    if writer == "json of .net" and ("\\" in value or "\x7f" in value):
        return
    assert any(form in said for form in forms(value.encode())), (said, forms(value.encode()))


@pytest.mark.proves("K9")
def test_of_a_value_with_several_lines_each_is_masked():
    for line in PEM.split("\n"):
        assert line not in MASK.text(f"{line}\n")
    assert "MIIE" not in MASK.text(json.dumps({"key": PEM}))
    assert MASK.raw(b"a\nMIIEvQIBADANBgkqhkiG9w0\nb").count(b"\n") == 2


def test_what_is_short_or_called_nothing_secret_stays():
    assert not Mask({"short": "(A)"})
    assert Mask({"short": "(A)"}).raw(b"short") == b"short"
    env = {"API_KEY": "a" * 20, "PATH": "/usr/bin:/usr/local/bin", "GH_TOKEN": "short"}
    assert secret_values(env) == {"a" * 20: "(API_KEY)"}
    login = json.dumps(
        {"a": {"token": "t" * 30, "kind": "oauth", "n": 3}, "b": ["long words " * 3]}
    )
    assert list(strings_in(login.encode())) == ["t" * 30]
    assert list(strings_in(b"no json")) == []


LINE = json.dumps({"text": VALUE}).encode()


def read_in_parts(text: bytes, borders: list[int], mask: Mask = MASK) -> tuple[bytes, list[bytes]]:
    """What is kept of it, and the lines that were read."""
    partial, kept, skipping, lines = b"", b"", False, []
    for start, end in itertools.pairwise(sorted({0, len(text), *borders})):
        partial += text[start:end]
        is_last = end == len(text)
        found, raw = read_lines(partial, mask, is_skipping=skipping, is_last=is_last)
        partial, skipping = partial[found.length :], found.is_skipping
        kept += raw
        lines += found.lines
    return kept, lines


@pytest.mark.proves("K9")
@given(st.lists(st.integers(0, 400), max_size=8))
def test_lines_are_read_masked_however_they_come(cuts: list[int]):
    text = b"one " + LINE + b"\n" + LINE + b" more\n" + LINE
    kept, lines = read_in_parts(text, [cut % len(text) for cut in cuts])
    assert (len(kept), kept.count(b"(KEY)"), len(lines)) == (len(text), 3, 3)
    assert b"\n".join(lines) == kept


@pytest.mark.proves("K9")
@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_that_is_too_long_is_kept_masked_too(cut: int):
    value = b"a-plain-token-0123456789"
    text = b"x" * (LONGEST_LINE + 100) + value + b"\n" + value
    at = LONGEST_LINE + 100 + cut
    mask = Mask({value.decode(): "(KEY)"})
    kept, lines = read_in_parts(text, [LONGEST_LINE + 50, at, at + 2], mask)
    assert (len(kept), kept.count(b"(KEY)")) == (len(text), 2)
    assert lines[0] is None, "in place of the long line"
    assert len(lines) == 2
    assert value not in kept


def test_a_line_without_values_costs_next_to_nothing():
    mask = Mask({f"secret-value-number-{n:04d}": f"(S{n})" for n in range(20)})
    line = json.dumps({"type": "message", "text": "a word or two " * 40}).encode()
    times = []
    for _ in range(50):
        began = time.perf_counter()
        assert mask.raw(line) is line
        times.append(time.perf_counter() - began)
    assert sorted(times)[25] < 0.005


def test_the_end_of_a_very_long_line_is_looked_at_in_a_moment():
    body = base64.b64encode(random.Random(7).randbytes(2400)).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    key = "\n".join(("-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"))
    mask = Mask({key: "(PEM)", "ab" * 16_000: "(ODD)"})
    said = json.dumps(key)[1:-1].encode()
    many = said[:40] * 20 + b"-"
    for end, size in ((said[:3000], 3000), (said[:7], 7), (many, 1), (b"ab" * 99, 198)):
        data = b"x" * ((8 << 20) - len(end)) + end
        began = time.process_time()
        assert mask.beginning_at_end(data) == size
        assert time.process_time() - began < 0.5
    # What begins again and again is held back rather than compared everywhere.
    began = time.process_time()
    assert 40 <= mask.beginning_at_end(b"x" * (8 << 20) + said[:40] * 200) < 10 * len(key)
    assert mask.beginning_at_end(b"ab" * (4 << 20)) < 10 * 32_000
    assert time.process_time() - began < 1


NAMED = "sk-T0ken/with.dots_0123456789AbCdEfGhIj"
NAMES = NameMask({NAMED: "(KEY)", PEM: "(PEM)", "short": "(SHORT)"})


def labels(text: str, size: int = 63) -> str:
    return ".".join(text[at : at + size] for at in range(0, len(text), size))


@pytest.mark.proves("K9")
@pytest.mark.parametrize(
    "name",
    [
        NAMED.lower().replace("/", "-"),
        NAMED.upper().replace("/", "").replace(".", ""),
        labels(NAMED.replace("/", "").replace(".", ""), 7),
        "x" + NAMED.encode().hex(),
        labels(NAMED.encode().hex(), 20),
        *(
            labels(base64.b32encode(b"z" * n + NAMED.encode()).decode().strip("="))
            for n in range(6)
        ),
        *(
            base64.urlsafe_b64encode(b"z" * n + NAMED.encode()).decode().strip("=").lower()
            for n in range(4)
        ),
    ],
)
def test_a_value_in_the_name_of_a_host_is_masked_however_it_is_written_there(name: str):
    told = NAMES.text(f"{name}.evil.example")
    assert "(KEY)" in told
    assert told.endswith(".evil.example")
    left = told.replace("(KEY)", "").removesuffix(".evil.example")
    assert len(left) <= 12, "no more than what depends on its neighbours"


def test_a_line_of_a_longer_value_is_masked_in_names_as_well():
    assert NAMES.text("AbCdEfGhIjKlMnOpQrSt.evil.example") == "(PEM).evil.example"


@pytest.mark.parametrize("name", ["", "a.example", "short.example", "xn--bcher-kva.example", "é"])
def test_names_without_a_value_stay_as_they_are(name: str):
    assert NAMES.text(name) == name
    assert NameMask({}).text(name) == name


@given(st.text(alphabet="abcXYZ019-_.", max_size=80), st.integers(0, 80))
def test_whatever_stands_around_a_value_in_a_name_stays(around: str, at: int):
    value = "q7Kq7Kq7Kq7K"
    told = NameMask({value: "()"}).text(around[:at] + value + around[at:])
    assert told == around[:at] + "()" + around[at:]


def test_the_name_of_a_host_that_is_only_called_like_a_secret_is_told_as_it_is():
    env = {
        "KEYCLOAK_HOST": "keycloak.example.com",
        "AUTH_TOKEN": "Abc.Def-0123456789.Ghi",
        "AUTH_WORD": "one.two.three.0123456789",
        "KEY": "a-key-without-any-dots",
    }
    guessed = secret_values(env)
    mask = NameMask(guessed, guessed)
    assert mask.text("keycloak.example.com") == "keycloak.example.com"
    for name, value in list(env.items())[1:]:
        assert mask.text(f"{value.lower()}.evil.example") == f"({name}).evil.example"
    lent = {"keycloak.example.com": "pdk-HOST-0123456789"}
    assert NameMask(lent, guessed).text("keycloak.example.com") == "pdk-HOST-0123456789"


@pytest.mark.parametrize(("value", "is_masked"), [("registry1", False), ("registry10", True)])
def test_what_is_short_is_a_word_in_names(value: str, is_masked: bool):
    told = NameMask({value: "(KEY)"}).text(f"{value}.example")
    assert told == ("(KEY).example" if is_masked else f"{value}.example")
    assert "(KEY)" in NameMask({value: "(KEY)"}).text(f"{value.encode().hex()}.example")


def test_what_has_no_room_in_a_name_is_not_looked_for_in_names():
    assert in_names(b"x" * 253) == ["x" * 253]
    assert in_names(b"x" * 254) == []
    began = time.process_time()
    mask = NameMask({f"{n:03}" + "Long-Value/" * 6000: f"(S{n})" for n in range(100)})
    assert mask.text("a.example") == "a.example"
    assert time.process_time() - began < 1
