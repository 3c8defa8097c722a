"""What is held while somebody is asked: bounded, whatever a program does."""

import asyncio

import pytest

from paddock.domain.egress.asking import may_be_asked_for, may_be_resolved
from paddock.domain.egress.rule import parse
from paddock.gateway.asking import MOST_HELD, MOST_PLACES, Asking, Question

pytestmark = pytest.mark.timeout(20)
PLACE = ("a.example", 443)


class Waiter:
    """Judged anew, it is held again or not."""

    def __init__(self, asking: Asking, place: tuple[str, int] = PLACE) -> None:
        self._asking, self._place = asking, place
        self.heard: list[str] = []
        self.is_ruled = False

    def hold(self) -> str:
        return self._asking.hold(self, self._place)

    def settled(self) -> bool:
        self.heard.append("allowed" if self._asking.grants or self.is_ruled else self.hold())
        return not self.heard[-1]


@pytest.fixture
async def asking():
    made = Asking(lambda: None)
    made.hold_s = 30.0
    yield made
    made.close()


async def test_one_question_for_all_who_wait_for_the_same(asking: Asking):
    waiters = [Waiter(asking) for _ in range(3)]
    assert [each.hold() for each in waiters] == ["", "", ""]
    assert asking.told() == [Question(PLACE, 3, 3)]
    assert asking.told() == [Question(PLACE, 0, 3)], "told again, for who has forgotten it"
    asking.settle(PLACE, allowed=True, why="approval apr_1", for_s=5)
    assert [each.heard for each in waiters] == [["allowed"]] * 3
    assert asking.told() == []
    assert [rule.text for rule in asking.grants] == ["a.example:443"]
    assert asking.source_of(asking.grants[0]) == "approval apr_1"


async def test_a_denial_is_remembered_and_then_asked_anew(asking: Asking):
    waiter = Waiter(asking)
    waiter.hold()
    asking.settle(PLACE, allowed=False, why="no", for_s=0.2)
    assert waiter.heard == ["no"]
    assert Waiter(asking).hold() == "no"
    await asyncio.sleep(0.25)
    assert Waiter(asking).hold() == ""


async def test_what_is_allowed_for_a_while_ends(asking: Asking):
    asking.settle(PLACE, allowed=True, why="yes", for_s=0.2)
    assert asking.grants
    await asyncio.sleep(0.3)
    assert asking.grants == ()


async def test_without_anybody_to_end_it_it_ends_by_itself():
    asking = Asking(lambda: None, slack_s=0.0)
    asking.hold_s = 0.2
    waiter = Waiter(asking)
    waiter.hold()
    await asyncio.sleep(0.4)
    assert waiter.heard == ["nobody has answered for 0 s"]
    assert asking.held == 0


async def test_who_gave_up_is_told_of_once(asking: Asking):
    waiter = Waiter(asking)
    waiter.hold()
    asking.gone(waiter, PLACE)
    assert asking.told() == [Question(PLACE, 1, 0)]
    assert asking.told() == []


async def test_places_and_connections_are_bounded(asking: Asking):
    for number in range(MOST_PLACES):
        assert Waiter(asking, (f"n{number}.example", 80)).hold() == ""
    assert "other places" in Waiter(asking).hold()
    while (why := Waiter(asking, ("n0.example", 80)).hold()) == "":
        pass
    assert f"{MOST_HELD} connections" in why
    assert asking.held == MOST_HELD


async def test_other_rules_release_who_waits(asking: Asking):
    waiter = Waiter(asking)
    waiter.hold()
    asking.reconsider()
    assert waiter.heard == [""], "held as before"
    assert asking.told() == [Question(PLACE, 1, 1)], "and not counted twice"


async def test_who_was_released_by_rules_is_neither_told_of_nor_released_again(asking: Asking):
    waiter, other = Waiter(asking), Waiter(asking)
    waiter.hold()
    other.hold()
    waiter.is_ruled = True
    asking.reconsider()
    assert asking.told() == [Question(PLACE, 2, 1)]
    other.is_ruled = True
    asking.reconsider()
    asking.reconsider()
    assert (waiter.heard, other.heard) == (["allowed"], ["", "allowed"])
    assert asking.told() == []


@pytest.mark.parametrize(
    ("name", "address", "may"),
    [
        ("a.example", "", True),
        ("", "192.0.2.1", True),
        ("", "8.8.8.8", True),
        ("", "10.0.0.1", False),
        ("", "127.0.0.1", False),
        ("", "169.254.169.254", False),
        ("", "100.100.100.200", False),
        ("", "198.18.0.9", False),
        ("", "0.0.0.0", False),
        ("", "", False),
        ("router", "", False),
        ("localhost", "", False),
        ("metadata.google.internal", "", False),
        ("printer.local", "", False),
        ("1.0.0.127.in-addr.arpa", "", False),
    ],
)
def test_what_may_be_asked_for(name, address, may):
    assert may_be_asked_for(name, address) is may


@pytest.mark.proves("P16")
def test_a_name_that_is_denied_does_not_exist():
    rules = [parse("!a.example"), parse("!b.example:25"), parse("!*.c.example")]
    assert not may_be_resolved(rules, "a.example")
    assert may_be_resolved(rules, "b.example")
    assert not may_be_resolved(rules, "x.c.example")
    assert may_be_resolved(rules, "d.example")
