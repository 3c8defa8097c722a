"""The inbox: what people are asked before it is done, and their answers."""

from collections.abc import AsyncIterator, Callable, Sequence

from paddock.domain.ids import new_id
from paddock.interfaces.client.events import followed
from paddock.interfaces.client.results import ApprovalInfo, Event, read
from paddock.interfaces.client.server import Server, segment, without_nothing

_PATH = "/v1/approvals"


class AsyncApprovals:
    """What your team is asked."""

    @classmethod
    async def list(
        cls,
        *,
        states: Sequence[str] = (),
        kind: str = "",
        sandbox: str = "",
        server: Server | None = None,
    ) -> AsyncIterator[ApprovalInfo]:
        """All, newest first; those in one of the states, of one kind, of the sandbox of an id."""
        query = {"state": list(states), "kind": kind, "sandbox": sandbox}
        async for item in (server or Server()).pages(_PATH, query):
            yield read(ApprovalInfo, item)

    @classmethod
    async def get(cls, approval: str, *, server: Server | None = None) -> ApprovalInfo:
        """One of them, by its id."""
        answer = await (server or Server()).call("GET", f"{_PATH}/{segment(approval)}")
        return read(ApprovalInfo, answer)

    @classmethod
    async def allow(
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
        state = "allowed_always" if always else "allowed_task" if task else "allowed_once"
        wish = without_nothing(answer=state, level=always or None, note=note)
        return await _answer(server, approval, wish)

    @classmethod
    async def deny(
        cls, approval: str, *, note: str = "", server: Server | None = None
    ) -> ApprovalInfo:
        """What waits is refused, and not asked again for a while. Conflict when somebody was
        quicker."""
        return await _answer(server, approval, {"answer": "denied", "note": note})

    @classmethod
    async def answer(
        cls, approval: str, text: str, *, deny: bool = False, server: Server | None = None
    ) -> ApprovalInfo:
        """A question about a task, in words that its agent is told: it goes on, or with `deny` it
        does not. Conflict when somebody was quicker."""
        state = "denied" if deny else "allowed_once"
        return await _answer(server, approval, {"answer": state, "note": text})

    @classmethod
    async def follow(
        cls,
        *,
        sandbox: str = "",
        after: int | None = None,
        opened: Callable[[], None] | None = None,
        server: Server | None = None,
    ) -> AsyncIterator[Event]:
        """What is asked, answered and expired from now on, or after an event; across restarts of
        the server, each once. `opened` is called when "now" has begun: what is listed after that
        and what comes here leave no gap."""
        source = followed(
            server or Server(), f"{_PATH}/stream", {"sandbox": sandbox}, after=after, opened=opened
        )
        async for event in source:
            yield event


async def _answer(server: Server | None, approval: str, wish: object) -> ApprovalInfo:
    path = f"{_PATH}/{segment(approval)}/answer"
    answer = await (server or Server()).call("POST", path, json=wish, key=new_id("key"))
    return read(ApprovalInfo, answer)
