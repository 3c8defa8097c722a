"""The port to a coding agent: how it is started, and what it says put into one vocabulary.

Everything here is a pure function: nothing waits, nothing is read or written. Who does that is
`services.task_agents`, the same for every agent.
"""

from collections.abc import Collection
from typing import Protocol

from paddock.domain.agent import Brief, Launch, Talk, Traits
from paddock.domain.message import Message


class Agent(Protocol):
    """One kind of agent."""

    @property
    def traits(self) -> Traits: ...

    def check(self, brief: Brief) -> None:
        """InvalidRequest for a model or an option that it can never work with."""
        ...

    def launch(self, brief: Brief) -> Launch: ...

    def begin(self, brief: Brief) -> Talk:
        """What it is told first: usually its prompt, on its input."""
        ...

    def hear(self, talk: Talk, line: bytes) -> Talk:
        """One whole line of its standard output, whatever is in it; it is never refused."""
        ...

    def tell(self, talk: Talk, message: Message) -> Talk:
        """A message in one of its modes, while it works."""
        ...

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        """Messages that are of no use any more: of those that it was told and keeps for later, it
        says nothing. Nothing is broken off for that; never those that interrupt."""
        ...

    def taken(self, talk: Talk, message_id: str) -> Talk:
        """Its program has taken a message out of its inbox; only of one that it was told there."""
        ...

    def stop(self, talk: Talk) -> Talk:
        """It shall end, politely; whoever asks for that ends it by force after a while."""
        ...

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        """It has ended, with the end of its standard error: what events that calls for."""
        ...
