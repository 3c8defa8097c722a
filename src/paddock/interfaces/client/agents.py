"""Agents: who does the work of tasks, and what each needs before it can."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from paddock.interfaces.client.following import messages, streaming
from paddock.interfaces.client.results import AgentInfo, read
from paddock.interfaces.client.server import Server, segment

_PATH = "/v1/agents"


class AsyncAgents:
    """Those that the server knows."""

    @classmethod
    async def list(cls, *, server: Server | None = None) -> AsyncIterator[AgentInfo]:
        """All, by name, with what your team lacks for each."""
        async for item in (server or Server()).pages(_PATH, {}):
            yield read(AgentInfo, item)

    @classmethod
    async def get(cls, name: str, *, server: Server | None = None) -> AgentInfo:
        """One of them."""
        answer = await (server or Server()).call("GET", f"{_PATH}/{segment(name)}")
        return read(AgentInfo, answer)

    @classmethod
    async def install(cls, name: str, *, server: Server | None = None) -> AgentInfo:
        """Install it on the server's host, for all sandboxes; it answers when this returns. For the
        team that runs the installation. Without it the first task does that."""
        place = server or Server()
        call = streaming("POST", f"{_PATH}/{segment(name)}/install", repeatable=True)
        async with aclosing(messages(place, call)) as steps:
            async for _ in steps:
                pass
        return await cls.get(name, server=place)
