"""Files of log-ins leave this host without what makes new tokens, and are otherwise the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.auth_file import blanked
from paddock.domain.errors import InvalidRequest

REFRESH = ("refresh", "refreshToken", "refresh_token", "refresh-token", "REFRESH_TOKEN")
_leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
_keys = st.text(max_size=10) | st.sampled_from(REFRESH)
_documents = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_keys, inner, max_size=4)
        | inner.map(json.dumps)
    ),
    max_leaves=20,
)


def _is_refresh(key: str) -> bool:
    return key.lower().replace("_", "").replace("-", "") in ("refresh", "refreshtoken")


def _tokens(value: Any) -> list[Any]:
    """Whatever stands under a key of that kind, however deep, also in strings."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return []
        return _tokens(value) if not isinstance(value, int | float | None) else []
    if isinstance(value, list):
        return [token for each in value for token in _tokens(each)]
    if isinstance(value, dict):
        here = [each for key, each in value.items() if _is_refresh(key)]
        return here + [token for each in value.values() for token in _tokens(each)]
    return []


def _without(value: Any) -> Any:
    """The same with the values under such keys out of sight, and strings of JSON read."""
    if isinstance(value, str):
        try:
            held = json.loads(value)
        except ValueError:
            return value
        return ["held", _without(held)] if isinstance(held, dict | list | str) else value
    if isinstance(value, list):
        return [_without(each) for each in value]
    if isinstance(value, dict):
        return {key: None if _is_refresh(key) else _without(each) for key, each in value.items()}
    return value


@pytest.mark.proves("K7")
@given(_documents)
def test_nothing_that_refreshes_is_left_and_all_else_is(document: Any) -> None:
    made = json.loads(blanked(json.dumps(document)))
    assert all(token == "" for token in _tokens(made))
    assert len(_tokens(made)) <= len(_tokens(document))
    assert _without(made) == _without(document)


@pytest.mark.proves("K7")
@given(st.text(max_size=30), st.sampled_from(REFRESH), st.integers(0, 5))
def test_a_token_is_found_in_json_within_json(secret: str, key: str, depth: int) -> None:
    secret = f"secret-{secret}-secret"
    text = json.dumps({"account": {key: secret, "access": "kept"}})
    for _ in range(depth):
        text = json.dumps({"inner": text})
    made = blanked(text)
    assert json.dumps(secret)[1:-1] not in made
    held = json.loads(made)
    for _ in range(depth):
        held = json.loads(held["inner"])
    assert held == {"account": {key: "", "access": "kept"}}


@pytest.mark.proves("K7")
@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        (
            {"claudeAiOauth": {"accessToken": "a", "refreshToken": "r", "expiresAt": 1}},
            {"claudeAiOauth": {"accessToken": "a", "refreshToken": "", "expiresAt": 1}},
        ),
        (
            {"auth_mode": "chatgpt", "tokens": {"id_token": "i", "refresh_token": "r"}},
            {"auth_mode": "chatgpt", "tokens": {"id_token": "i", "refresh_token": ""}},
        ),
        (
            {"anthropic": {"type": "oauth", "refresh": "r", "access": "a"}},
            {"anthropic": {"type": "oauth", "refresh": "", "access": "a"}},
        ),
        ({"refresh_token": {"nested": "r"}}, {"refresh_token": ""}),
        ({"refreshed_at": "kept", "tokens": []}, {"refreshed_at": "kept", "tokens": []}),
    ],
    ids=["claude code", "codex", "opencode", "an object", "other names"],
)
def test_agents_find_their_keys_as_they_were(document: Any, wanted: Any) -> None:
    assert json.loads(blanked(json.dumps(document))) == wanted


@pytest.mark.proves("K7")
@pytest.mark.parametrize(
    "text", ["", "token=abc", "{", "[" * 100_000], ids=["empty", "plain", "cut off", "too deep"]
)
def test_what_is_not_json_does_not_leave(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not JSON"):
        blanked(text)


@pytest.mark.proves("K7")
@pytest.mark.parametrize(
    "text",
    [
        '{"refresh_token": "r1"',
        "https://example.org/?refresh_token=r1",
        'refreshToken: "r1"',
        '"{\\"refresh_token\\": \\"r1\\""',
    ],
    ids=["cut off", "an address", "a line", "escaped"],
)
def test_text_that_shows_a_token_does_not_leave(text: str) -> None:
    with pytest.raises(InvalidRequest, match="would be left"):
        blanked(json.dumps({"inner": text}))


def test_text_that_speaks_of_tokens_may_leave() -> None:
    document = {"scope": "refresh_token offline_access", "note": "refresh_token:", "t": ""}
    assert json.loads(blanked(json.dumps(document))) == document


def test_json_that_is_hidden_deeper_than_can_be_read_does_not_leave() -> None:
    """What nobody can look into may hold anything."""
    hidden = '{"refresh_token": "r", "more": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(InvalidRequest):
        blanked(json.dumps({"inner": hidden}))
