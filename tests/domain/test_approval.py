"""What becomes of a question, without anybody asking."""

from dataclasses import replace

import pytest

from paddock.domain import approval as rules
from paddock.domain.approval import Answer, Approval, Kind, Level, State
from paddock.domain.errors import Conflict, Forbidden, InvalidRequest

ASKED = Approval(
    id="apr_1",
    team_id="tem_1",
    sandbox_id="sbx_1",
    kind=Kind.COMMAND,
    what="digest",
    created_at=1000.0,
    expires_at=1300.0,
    detail={"argv": ["psql", "--password=x"]},
    asked_by="usr_1/tok_1",
)
ANSWERS = (State.ALLOWED_ONCE, State.ALLOWED_TASK, State.ALLOWED_ALWAYS, State.DENIED)


def answer(state: State) -> Answer:
    return Answer(state, Level.APP if state is State.ALLOWED_ALWAYS else None)


@pytest.mark.parametrize("state", ANSWERS)
def test_an_answer_is_for_good_and_takes_the_detail_with_it(state):
    done = rules.answered(ASKED, answer(state), "usr_2/ses_1", 1100.0)
    assert (done.state, done.answered_by, done.answered_at) == (state, "usr_2/ses_1", 1100.0)
    assert done.detail == {}
    for other in ANSWERS:
        with pytest.raises(Conflict, match=f"usr_2/ses_1: {state}"):
            rules.answered(done, answer(other), "usr_3/tok_3", 1101.0)
    with pytest.raises(Conflict):
        rules.expired(done, "too late", 1400.0)


def test_nobody_answers_what_has_expired():
    with pytest.raises(Conflict, match="has expired"):
        rules.answered(ASKED, answer(State.DENIED), "usr_2/tok_2", 1300.0)
    over = rules.expired(ASKED, "nobody answered in time", 1300.0)
    assert (over.state, over.detail) == (State.EXPIRED, {})
    with pytest.raises(Conflict, match="nobody answered in time"):
        rules.answered(over, answer(State.DENIED), "usr_2/tok_2", 1200.0)


@pytest.mark.parametrize(
    ("state", "level"),
    [
        (State.PENDING, None),
        (State.EXPIRED, None),
        (State.ALLOWED_ALWAYS, None),
        (State.DENIED, Level.APP),
        (State.ALLOWED_ONCE, Level.SANDBOX),
    ],
)
def test_what_is_no_answer_is_refused(state, level):
    with pytest.raises(InvalidRequest):
        Answer(state, level)


def test_a_token_does_not_approve_of_itself_but_its_person_and_its_maker_may():
    asked = replace(ASKED, asked_by="usr_1/tok_1")
    with pytest.raises(Forbidden, match="tok_1 has asked"):
        rules.check_may_answer(asked, ("tok_1",))
    for made in (("ses_1", "tok_1"), ("tok_2", "ses_1", "tok_1")):
        with pytest.raises(Forbidden, match=f"tok_1, which has made {made[0]}, has asked"):
            rules.check_may_answer(asked, made)
    rules.check_may_answer(asked, ("ses_1",))
    rules.check_may_answer(asked, ("tok_0",))
    rules.check_may_answer(replace(ASKED, asked_by="anyone"), ())


def test_who_opens_a_guest_does_not_answer_for_what_comes_of_it():
    egress = replace(ASKED, kind=Kind.EGRESS, asked_by="sbx_1")
    rules.check_may_answer(egress, ("tok_1",))
    passed = replace(ASKED, kind=Kind.COMMAND, asked_by="paddock/passage/tok_9")
    for asked in (egress, passed):
        rules.check_may_answer(asked, ("ses_1",), ("tok_1", "tok_2"))
        with pytest.raises(Forbidden, match="tok_2 opens the sandbox that has asked"):
            rules.check_may_answer(asked, ("tok_2",), ("tok_1", "tok_2"))
        with pytest.raises(Forbidden, match="tok_2, which has made ses_1, opens the sandbox"):
            rules.check_may_answer(asked, ("ses_1", "tok_2"), ("tok_1", "tok_2"))
    rules.check_may_answer(replace(passed, asked_by="tok_9"), ("tok_2",), ("tok_2",))


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        (State.ALLOWED_ONCE, rules.ONCE_S),
        (State.DENIED, rules.DENIED_S),
        (State.ALLOWED_TASK, 0.0),
        (State.ALLOWED_ALWAYS, 0.0),
    ],
)
def test_an_answer_holds_for_a_while(state, seconds):
    done = rules.answered(ASKED, answer(state), "x", 1100.0)
    assert rules.holds_for_s(done, 1100.0) == seconds
    assert rules.holds_for_s(done, 1100.0 + seconds) == 0.0
    assert rules.holds_for_s(replace(done, used=True), 1100.0) == 0.0
    assert rules.holds_for_s(ASKED, 1000.0) == 0.0


def test_silence_holds_for_a_while_too():
    over = rules.expired(ASKED, "", 1300.0)
    assert rules.holds_for_s(over, 1310.0) == rules.EXPIRED_S - 10


def test_what_is_asked_again_is_counted():
    again = rules.asked_again(ASKED, 3, 1010.0)
    assert (again.count, again.last_at, again.expires_at) == (4, 1010.0, 1300.0)
