"""What is read of requests before they are sent has a bound: a request's, a sandbox's, and one of
all sandboxes together, of which nobody gets all."""

from paddock.gateway.room import MOST_IN_ALL, MOST_OF_SANDBOX, Full, Room, Share


def test_a_sandbox_takes_so_much_and_what_it_had_comes_back():
    whole = Room()
    share = Share(whole.of_team("a").of_sandbox())
    assert share.hold(MOST_OF_SANDBOX) is None
    assert share.lacks(1) is Full.SANDBOX
    assert share.hold(MOST_OF_SANDBOX + 1) is Full.SANDBOX
    assert whole.taken == MOST_OF_SANDBOX + 1
    assert share.hold(10) is None
    share.hold(0)
    assert whole.taken == 0


def test_however_many_take_what_they_can_there_is_some_left_for_another_team():
    whole, shares = Room(), []
    for team in ("a", "b", "c"):
        for _ in range(40):
            shares.append(Share(whole.of_team(team).of_sandbox()))
            size = MOST_OF_SANDBOX
            while size and shares[-1].lacks(size):
                size //= 2
            assert shares[-1].hold(size) is None
            assert shares[-1].lacks(size + 1) is not None
    assert whole.taken <= MOST_IN_ALL
    late = Share(whole.of_team("d").of_sandbox())
    assert late.lacks(8 << 20) is None
    assert late.lacks(MOST_OF_SANDBOX) is Full.GATEWAY
    for each in shares:
        each.hold(0)
    assert (whole.taken, late.lacks(MOST_OF_SANDBOX)) == (0, None)
