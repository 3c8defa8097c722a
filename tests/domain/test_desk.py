"""What an agent may say at its task's desk, and by which token."""

import json

import pytest

from paddock.domain.desk import Ask, Claim, Progress, check_token, mcp, read, token_of
from paddock.domain.errors import Forbidden, InvalidRequest, Unauthenticated

KEY = b"k" * 32
MINE = {"task_id": "tsk_a", "sandbox_id": "sbx_a", "run": 2}


@pytest.mark.proves("K8")
@pytest.mark.parametrize(
    ("offered", "error", "says"),
    [
        ("", Unauthenticated, "there is no token"),
        ("tok_x.y", Unauthenticated, "no token of a task's run"),
        ("ptr_a", Unauthenticated, "never given out"),
        ("ptr_a.2.", Unauthenticated, "never given out"),
        ("ptr_a.²." + "0" * 40, Unauthenticated, "never given out"),
        (token_of(KEY, "tsk_a", "sbx_a", 1), Unauthenticated, "run 1, which has ended"),
        (token_of(KEY, "tsk_a", "sbx_b", 2), Unauthenticated, "never given out for this sandbox"),
        (token_of(b"other", "tsk_a", "sbx_a", 2), Unauthenticated, "never given out"),
        (token_of(KEY, "tsk_b", "sbx_a", 2), Forbidden, "another task"),
    ],
)
def test_a_token_opens_the_desk_it_was_made_for_and_no_other(offered, error, says):
    check_token(KEY, token_of(KEY, "tsk_a", "sbx_a", 2), **MINE)
    with pytest.raises(error, match=says):
        check_token(KEY, offered, **MINE)


def test_what_is_said_is_read_as_it_is_meant():
    asked = read("ask", {"question": " Go?\x1b[2J ", "options": ["yes", "no"], "timeout_s": 60})
    assert asked == Ask("Go?\ufffd[2J", ("yes", "no"), 60.0)
    assert read("progress", {"text": "half", "percent": 50}) == Progress("half", 50.0)
    assert read("verdict", {"name": "lint", "passed": False}) == Claim("lint", passed=False)


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("ask", {}),
        ("ask", {"question": 1}),
        ("ask", {"question": "a", "options": "b"}),
        ("ask", {"question": "a", "options": [""]}),
        ("ask", {"question": "a", "timeout_s": float("nan")}),
        ("progress", {"text": "a", "percent": True}),
        ("progress", {"text": "a", "percent": float("inf")}),
        ("verdict", {"name": "a" * 64, "passed": True}),
        ("verdict", {"passed": True}),
        ("anything", {}),
        ("ask", None),
    ],
)
def test_what_cannot_be_meant_is_refused(verb, given):
    with pytest.raises(InvalidRequest) as refused:
        read(verb, given)
    assert refused.value.remediation


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[" * 100_000, b"1", b'{"method": 1, "id": 1}', b"\xff"]
)
def test_what_is_no_request_of_mcp_is_answered_with_an_error(body):
    answer = mcp.understood(body)
    assert isinstance(answer, dict)
    assert answer["error"]["code"] in (-32700, -32600)
    json.dumps(answer)
