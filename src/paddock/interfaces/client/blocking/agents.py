"""Agents: who does the work of tasks, and what each needs before it can.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator

from paddock.interfaces.client.agents import AsyncAgents
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import AgentInfo
from paddock.interfaces.client.server import Server


class Agents:
    """Those that the server knows."""

    _inner: AsyncAgents

    def __init__(self, inner: AsyncAgents) -> None:
        self._inner = inner

    @classmethod
    def list(cls, *, server: Server | None = None) -> Iterator[AgentInfo]:
        """All, by name, with what your team lacks for each."""
        return portal().each(AsyncAgents.list(server=server))

    @classmethod
    def get(cls, name: str, *, server: Server | None = None) -> AgentInfo:
        """One of them."""
        return portal().run(AsyncAgents.get(name, server=server))

    @classmethod
    def install(cls, name: str, *, server: Server | None = None) -> AgentInfo:
        """Install it on the server's host, for all sandboxes; it answers when this returns. For the
        team that runs the installation. Without it the first task does that."""
        return portal().run(AsyncAgents.install(name, server=server))
