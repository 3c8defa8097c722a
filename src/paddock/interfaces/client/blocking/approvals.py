"""The inbox: what people are asked before it is done, and their answers.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Callable, Iterator, Sequence

from paddock.interfaces.client.approvals import AsyncApprovals
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import ApprovalInfo, Event
from paddock.interfaces.client.server import Server


class Approvals:
    """What your team is asked."""

    _inner: AsyncApprovals

    def __init__(self, inner: AsyncApprovals) -> None:
        self._inner = inner

    @classmethod
    def list(
        cls,
        *,
        states: Sequence[str] = (),
        kind: str = "",
        sandbox: str = "",
        server: Server | None = None,
    ) -> Iterator[ApprovalInfo]:
        """All, newest first; those in one of the states, of one kind, of the sandbox of an id."""
        return portal().each(
            AsyncApprovals.list(states=states, kind=kind, sandbox=sandbox, server=server)
        )

    @classmethod
    def get(cls, approval: str, *, server: Server | None = None) -> ApprovalInfo:
        """One of them, by its id."""
        return portal().run(AsyncApprovals.get(approval, server=server))

    @classmethod
    def allow(
        cls,
        approval: str,
        *,
        task: bool = False,
        always: str = "",
        note: str = "",
        server: Server | None = None,
    ) -> ApprovalInfo:
        """What waits goes on, this once; with `task` until its task is over (without one, in this
        sandbox), with `always` by a rule: of the `sandbox`, `app`, `template` or `preset` for a
        host, of the policy that asks (`sandbox`, `template` or `team`) for a command. Conflict when
        somebody was quicker."""
        return portal().run(
            AsyncApprovals.allow(approval, task=task, always=always, note=note, server=server)
        )

    @classmethod
    def deny(cls, approval: str, *, note: str = "", server: Server | None = None) -> ApprovalInfo:
        """What waits is refused, and not asked again for a while. Conflict when somebody was
        quicker."""
        return portal().run(AsyncApprovals.deny(approval, note=note, server=server))

    @classmethod
    def answer(
        cls, approval: str, text: str, *, deny: bool = False, server: Server | None = None
    ) -> ApprovalInfo:
        """A question about a task, in words that its agent is told: it goes on, or with `deny` it
        does not. Conflict when somebody was quicker."""
        return portal().run(AsyncApprovals.answer(approval, text, deny=deny, server=server))

    @classmethod
    def follow(
        cls,
        *,
        sandbox: str = "",
        after: int | None = None,
        opened: Callable[[], None] | None = None,
        server: Server | None = None,
    ) -> Iterator[Event]:
        """What is asked, answered and expired from now on, or after an event; across restarts of
        the server, each once. `opened` is called when "now" has begun: what is listed after that
        and what comes here leave no gap."""
        return portal().each(
            AsyncApprovals.follow(sandbox=sandbox, after=after, opened=opened, server=server)
        )
