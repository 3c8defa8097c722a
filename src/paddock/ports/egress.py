"""What leaves a sandbox under an allowlist: the gateway that it goes through, and what that saw."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paddock.domain.broker.models import Prices
from paddock.domain.egress import EgressPolicy


@dataclass(frozen=True, slots=True)
class Flow:
    """Connections of one sandbox to one place with one outcome, in one stretch of time."""

    ref: str
    """The provider's id of the sandbox."""
    sandbox: str
    """What it was labelled with by who had it made."""
    host: str
    port: int
    """0 for a name that was asked for and does not exist to the sandbox."""
    allowed: bool
    rule: str
    source: str
    why: str
    connections: int
    bytes_up: int
    bytes_down: int
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class Credential:
    """A value that a sandbox's requests to some hosts are given, and the form in which they are."""

    secret: str
    placeholder: str
    """What stands for it inside."""
    hosts: list[str]
    way: str
    value: str = field(default="", repr=False)
    """Empty when there is none; `lacks` says why then."""
    header: str = ""
    format: str = ""
    own: bool = False
    """The header stands in place of what a request has of it, for the nearest of the hosts that
    have some, and what has no placeholder may come back."""
    user: str = ""
    parameter: str = ""
    expires_at: float | None = None
    lacks: str = ""
    remedy: str = ""
    """Who can do what about it."""
    route: str = ""
    """Of a model API; the fields from here on are about it."""
    dialect: str = ""
    base_path: str = ""
    plain: bool = False
    """The API speaks plain HTTP. An operator has set the route, so its host may be private."""
    account: str = ""
    limit: float | None = None
    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class CredentialUse:
    """Requests of one sandbox to one host that one credential was put into, or was lacking for."""

    ref: str
    sandbox: str
    secret: str
    host: str
    port: int
    way: str
    rule: str
    lacks: str
    count: int
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Answers of one model to one sandbox, in one stretch of time."""

    ref: str
    sandbox: str
    account: str
    """Whose spending it counts to."""
    route: str
    model: str
    guessed: bool
    """The API did not say how many tokens they were."""
    requests: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost: float
    """In dollars."""
    first_at: float
    last_at: float
    assumed: bool = False
    """The table has no price for the model, so it counted as any other."""
    reasoning: int = 0
    """Of the output, what was thought."""


@dataclass(frozen=True, slots=True)
class FlowBatch:
    """What a gateway tells at once; told again until the next one is asked for with its number."""

    gateway: str
    """Its numbers begin anew with every gateway."""
    number: int
    flows: tuple[Flow, ...]
    dropped: int = 0
    """Connections that were too many to be told of."""
    uses: tuple[CredentialUse, ...] = ()
    models: tuple[ModelUse, ...] = ()
    more: bool = False
    """There is another at once: a batch has a bounded size."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A place that no rule is about and that connections of a sandbox are held for."""

    ref: str
    """The provider's id of the sandbox."""
    sandbox: str
    """What it was labelled with by who had it made."""
    host: str
    port: int
    attempts: int
    """Since it was last told."""
    connections: int
    """That are held now; none when they gave up before anybody was told."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What somebody has answered."""

    allowed: bool
    why: str
    """Whose answer it is, for the record and for who is refused."""
    for_s: float
    """How long it holds for those that come after."""


class Gateway(Protocol):
    """Where a provider's sandboxes meet the world. Every method may raise Unavailable.

    While there is none, sandboxes reach nothing: their packets end in their own network.
    """

    async def attach(
        self, ref: str, sockets: Sequence[socket.socket], policy: EgressPolicy, shown: str = ""
    ) -> None:
        """What comes in at these sockets of a sandbox is judged by the policy from now on.

        The sockets are the caller's to close. One that was attached before is so anew.
        """
        ...

    async def change(self, ref: str, policy: EgressPolicy, shown: str = "") -> bool:
        """Connections that the policy does not allow are closed. False when it is not attached."""
        ...

    async def detach(self, ref: str) -> None:
        """Its connections are closed, and nobody listens in it. Absent is success."""
        ...

    async def attached(self) -> frozenset[str]:
        """All that are; none where there is no gateway, which is not started for this."""
        ...


class FlowSource(Protocol):
    """A gateway as the control plane sees it that keeps its records and gives it credentials."""

    @property
    def looks_into_tls(self) -> bool:
        """Whether the sandboxes trust it to be a host that a secret is bound to."""
        ...

    async def close_ports(self, ports: frozenset[int]) -> None:
        """No sandbox reaches these ports of this host from now on, whatever its rules."""
        ...

    async def give(self, ref: str, mark: str, credentials: Sequence[Credential]) -> bool:
        """All that a sandbox has from now on. They are held in memory only, and go when it is
        detached. False when it is not attached."""
        ...

    async def set_prices(self, prices: Prices) -> None:
        """What models cost from now on, also at a gateway that is started later."""
        ...

    async def marks(self) -> dict[str, str] | None:
        """Of each sandbox that is attached, what its credentials were given with, or empty.
        None where there is no gateway, which is not started for this."""
        ...

    async def drain(self, stored: Mapping[str, int]) -> FlowBatch | None:
        """What was seen since, here or by a gateway of before that is still there. All batches up
        to these numbers, by gateway, are on record."""
        ...


class Doorkeeper(Protocol):
    """A gateway as the one who asks people sees it."""

    async def wanted(self) -> Sequence[Wanted]:
        """All places that are waited for, every time, so that nobody has to remember them."""
        ...

    async def settle(self, wanted: Wanted, verdict: Verdict) -> None:
        """Who is held goes on or is refused. Absent is success."""
        ...
