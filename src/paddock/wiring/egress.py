"""What sandboxes may reach, and who is asked: where no rule says it, and about commands."""

from collections.abc import Mapping
from typing import Protocol

from paddock.adapters.egress.presets import shipped_presets
from paddock.domain.records import SandboxRecord
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.approvals import Approvals
from paddock.services.broker import Broker
from paddock.services.changes import Changes
from paddock.services.command_asks import CommandAsks
from paddock.services.egress import Egress
from paddock.services.egress_asks import EgressAsks
from paddock.services.events import EventFeed
from paddock.services.granted import Granted
from paddock.services.intake import Inside
from paddock.services.making import Making
from paddock.services.once import Once
from paddock.services.policies import Policies
from paddock.services.providers import Providers
from paddock.settings import Settings


class Parts(Protocol):
    """What it takes."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def once(self) -> Once: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def events(self) -> EventFeed: ...
    @property
    def making(self) -> Making: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def broker(self) -> Broker: ...


def egress_of(parts: Parts, settings: Settings) -> tuple[Egress, Approvals, EgressAsks]:
    """Known to who makes sandboxes, and to who judges commands."""
    config = settings.egress
    granted = Granted(parts.store, parts.clock)
    egress = Egress(
        parts.store,
        parts.clock,
        parts.changes,
        parts.providers,
        granted=granted,
        shipped=shipped_presets(),
        preset=config.preset,
    )

    async def inside(sandbox: SandboxRecord) -> Mapping[str, str]:
        return await parts.broker.inside(sandbox)  # which is made later

    inbox = Approvals(parts.store, parts.clock, parts.once)
    asks = EgressAsks(
        parts.store,
        parts.clock,
        approvals=inbox,
        egress=egress,
        granted=granted,
        changes=parts.changes,
        doors=parts.providers.doors,
        inside=inside,
        timeout_s=config.ask_timeout_s,
    )

    timeout_s = settings.server.ask_timeout_s
    commands = _commands(parts, inbox, inside, timeout_s)
    parts.making.networks, parts.policies.approve = egress, commands.approve
    return egress, inbox, asks


def _commands(parts: Parts, inbox: Approvals, inside: Inside, timeout_s: float) -> CommandAsks:
    return CommandAsks(
        parts.store,
        parts.clock,
        approvals=inbox,
        policies=parts.policies,
        changes=parts.changes,
        events=parts.events,
        inside=inside,
        timeout_s=timeout_s,
    )
