"""Agents: those that are known, and where they are installed on this host."""

from typing import Protocol

from paddock.adapters.agents.registry import AGENTS, own_agents
from paddock.adapters.agents.store import NpmAgentStore
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.agents import Agents
from paddock.services.bindings import Bindings
from paddock.services.providers import Providers
from paddock.services.secrets import Secrets
from paddock.settings import Settings


class Parts(Protocol):
    """What they are made of."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def bindings(self) -> Bindings: ...


def agents_of(parts: Parts, settings: Settings) -> Agents:
    return Agents(
        {**AGENTS, **own_agents(settings.agents.own)},
        NpmAgentStore(settings.agents_dir),
        store=parts.store,
        clock=parts.clock,
        providers=parts.providers,
        secrets=parts.secrets,
        bindings=parts.bindings,
    )
