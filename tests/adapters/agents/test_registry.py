"""Agents that are not Paddock's: found by name, and whole."""

import pytest

from paddock.adapters.agents.command import Command
from paddock.adapters.agents.registry import own_agents
from paddock.domain.errors import InvalidRequest


class Whole(Command):
    pass


class Older:
    """As one was that knew nothing of messages which expire."""

    def __init__(self):
        whole = Whole()
        self.traits = whole.traits
        for name in ("check", "launch", "begin", "hear", "tell", "taken", "stop", "end"):
            setattr(self, name, getattr(whole, name))


def test_an_agent_of_ones_own_is_found_by_its_name():
    assert list(own_agents([f"{__name__}:Whole"])) == ["command"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("Older", "has no attribute 'drop'"), ("Nobody", "has no attribute 'Nobody'")],
)
def test_one_that_lacks_something_is_refused_when_the_server_starts(name, why):
    with pytest.raises(InvalidRequest, match=why):
        own_agents([f"{__name__}:{name}"])
