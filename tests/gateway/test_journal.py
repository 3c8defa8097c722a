"""What is told of connections: summed up, bounded, and not lost."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from paddock.domain.broker.models import Tokens
from paddock.gateway.journal import (
    BURST,
    LARGEST_BATCH,
    OTHERS,
    OTHERS_EVERY_S,
    PER_SECOND,
    Journal,
    Key,
    ModelKey,
    UseKey,
)
from paddock.gateway.protocol import Flows


def key(host: str = "a.example", **more: object) -> Key:
    return Key("sandbox", host, 443, allowed=True, **more)  # type: ignore[arg-type]


def batches(journal: Journal, ack: int = 0) -> Iterator[Flows]:
    """One after the other, each acknowledged, while there are more."""
    while True:
        yield (batch := journal.drain(ack))
        ack = batch.number
        if not batch.more:
            return


def test_connections_to_one_place_are_one_entry():
    times = iter(range(100))
    journal = Journal(now=lambda: float(next(times)))
    for _ in range(3):
        journal.add(key(), connections=1, up=10, down=100)
    batch = journal.drain(0)
    (flow,) = batch.flows
    assert (flow.connections, flow.bytes_up, flow.bytes_down) == (3, 30, 300)
    assert (flow.first_at, flow.last_at) == (0.0, 2.0)


def test_a_batch_is_told_until_it_is_acknowledged():
    journal = Journal()
    journal.add(key(), connections=1)
    first = journal.drain(0)
    journal.add(key("b.example"), connections=1)
    assert journal.drain(0) == first
    second = journal.drain(first.number)
    assert [flow.host for flow in second.flows] == ["b.example"]
    assert second.number == first.number + 1
    assert journal.drain(second.number).flows == []
    journal.add(key("c.example"), connections=1)
    assert journal.drain(second.number).number == second.number + 1


def test_names_without_number_become_one_entry():
    journal = Journal()
    for number in range(2000):
        journal.add(key(f"n{number}.example"), connections=1)
    flows = [flow for batch in batches(journal) for flow in batch.flows]
    assert len(flows) == 501
    assert sum(flow.connections for flow in flows) == 2000
    assert flows[-1].host == OTHERS


def test_what_is_too_much_is_counted():
    journal = Journal()
    for sandbox in range(50):
        for number in range(450):
            journal.add(Key(f"s{sandbox}", f"n{number}", 1, allowed=False), connections=1)
    told = list(batches(journal))
    assert sum(len(batch.flows) for batch in told) == 20_000
    assert sum(batch.dropped for batch in told) == 2_500


def test_what_was_too_much_is_told_with_connections_whatever_goes_first():
    """Nothing else of a batch has a place for it on record."""
    journal = Journal()
    for number in range(20_001):
        journal.use(UseKey(f"s{number % 50}", "token", f"n{number}", 443, "header"))
    journal.add(key(), connections=1)
    told = list(batches(journal))
    assert len(told) > 1
    assert [batch.dropped for batch in told if batch.dropped] == [1]
    assert all(batch.flows for batch in told if batch.dropped)


def test_what_was_too_much_waits_for_connections():
    journal = Journal()
    for number in range(20_001):
        journal.use(UseKey(f"s{number % 50}", "token", f"n{number}", 443, "header"))
    *_, last = batches(journal)
    assert journal.drain(last.number) == Flows(last.number, [])
    journal.add(key(), connections=1)
    then = journal.drain(last.number)
    assert (len(then.flows), then.dropped) == (1, 1)
    journal.add(key(), connections=1)
    assert journal.drain(then.number).dropped == 0, "it is told once"


def test_what_is_taken_back_is_never_less_than_nothing():
    journal = Journal()
    allowed = Key("one", "a.example", 443, allowed=True)
    journal.add(allowed, connections=1)
    journal.take_back(allowed)
    assert journal.drain(0).flows == []
    journal.add(allowed, connections=2)
    journal.take_back(allowed)
    (flow,) = journal.drain(0).flows
    assert flow.connections == 1
    # It was told already: then it was, and the refusal is told as well.
    journal.take_back(allowed)
    assert journal.drain(1).flows == []
    journal.add(allowed, up=5)
    journal.take_back(allowed)
    (flow,) = journal.drain(1).flows
    assert (flow.connections, flow.bytes_up) == (0, 5)


def test_what_is_too_much_for_one_batch_is_in_the_next():
    now = [0.0]
    journal = Journal(now=lambda: now[0])
    names = [f"{number}.{'x' * 60}.{'y' * 60}.{'z' * 60}.example" for number in range(490)]
    for sandbox in range(5):
        for name in names:
            journal.add(Key(f"s{sandbox}", name, 0, allowed=False), connections=1)
            journal.use(UseKey(f"s{sandbox}", "token", name, 443, "header"))
            journal.spend(ModelKey(f"s{sandbox}", "account", "route", name), Tokens(1, 2), 0.25)
    connections, uses, costs = Counter[str](), Counter[str](), Counter[str]()
    numbers = []
    for batch in batches(journal):
        assert len(msgspec.json.encode(batch)) < LARGEST_BATCH + 2000
        assert journal.drain(batch.number - 1) is batch, "nobody has acknowledged it"
        if len(numbers) < 5:  # what comes meanwhile is told with the rest, or after it
            journal.add(Key("s0", names[0], 0, allowed=False), connections=1)
            journal.add(Key("s4", names[-1], 0, allowed=False), connections=1)
        numbers.append(batch.number)
        connections.update({f.sandbox + f.host: f.connections for f in batch.flows})
        uses.update({u.sandbox + u.host: u.count for u in batch.uses})
        costs.update({m.sandbox + m.model: int(m.cost * 100) for m in batch.models})
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 20
    each = [f"s{sandbox}{name}" for sandbox in range(5) for name in names]
    assert uses == Counter(each)
    assert costs == Counter(dict.fromkeys(each, 25))
    assert connections == Counter(each) + Counter({each[0]: 5, each[-1]: 5})
    now[0] += BURST / PER_SECOND
    for name in names:  # and the bound of each sandbox counts what is there, not what was
        journal.add(Key("s0", name, 1, allowed=True), connections=1)
    (*_, last) = batches(journal, numbers[-1])
    assert last.flows[-1].host == names[-1]


class Flooded:
    """A journal that is drained once a second, as the control plane does."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.journal = Journal(now=lambda: self.now)
        self.told: list[Flows] = []

    def second(self) -> None:
        ack = self.told[-1].number if self.told else 0
        self.told += batches(self.journal, ack)
        self.now += 1.0

    def hosts(self, sandbox: str) -> list[str]:
        return [f.host for batch in self.told for f in batch.flows if f.sandbox == sandbox]


def test_new_names_without_end_are_told_at_a_bounded_rate():
    """Issue: a sandbox fills the control plane's database."""
    flooded, seconds, each = Flooded(), 60, 600
    for second in range(seconds):
        for number in range(each):
            name = f"n{second}-{number}.example"
            flooded.journal.add(Key("loud", name, 0, allowed=False, why="no rule"), connections=1)
        flooded.journal.add(Key("quiet", f"q{second}.example", 443, allowed=True), connections=1)
        flooded.second()
    flooded.now += OTHERS_EVERY_S
    flooded.second()
    rows = flooded.hosts("loud")
    most = BURST + seconds * PER_SECOND + seconds / OTHERS_EVERY_S + 2
    assert BURST <= len(rows) <= most
    assert rows.count(OTHERS) <= seconds / OTHERS_EVERY_S + 2
    flows = [flow for batch in flooded.told for flow in batch.flows]
    connections = sum(flow.connections for flow in flows if flow.sandbox == "loud")
    assert connections == seconds * each, "every one of them is counted"
    assert flooded.hosts("quiet") == [f"q{second}.example" for second in range(seconds)]


def test_uses_of_credentials_and_models_have_a_bounded_rate_of_their_own():
    """A program chooses the names under a rule such as `*.example`, and those of models."""
    flooded, seconds, each = Flooded(), 20, 600
    for second in range(seconds):
        for number in range(each):
            name = f"n{second}-{number}.example"
            flooded.journal.use(UseKey("loud", "token", name, 443, "header", rule="*.example"))
            flooded.journal.spend(ModelKey("loud", "account", "route", name), Tokens(1, 2), 0.25)
        flooded.second()
    flooded.journal.add(Key("loud", "a.example", 443, allowed=True), connections=1)
    flooded.second()
    uses = [use for batch in flooded.told for use in batch.uses]
    models = [model for batch in flooded.told for model in batch.models]
    for told in (uses, models):
        assert BURST <= len(told) <= BURST + seconds * (PER_SECOND + 1) + 1
    assert {use.secret for use in uses if use.host == OTHERS} == {"token"}
    assert sum(use.count for use in uses) == sum(m.requests for m in models) == seconds * each
    assert sum(model.cost for model in models) == 0.25 * seconds * each
    assert flooded.hosts("loud") == ["a.example"], "what floods is not told in its place"
