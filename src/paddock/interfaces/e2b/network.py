"""E2B's network options as an egress wish. What cannot be enforced is refused, never ignored."""

from collections.abc import Sequence
from ipaddress import IPv4Address, ip_network
from typing import Annotated, Any

from pydantic import Field

from paddock.domain.egress import EgressWish, NetworkMode
from paddock.domain.egress.policy import WHOLE_WORLD
from paddock.domain.egress.rule import kept, parse
from paddock.domain.errors import Unsupported
from paddock.domain.records import SandboxRecord
from paddock.interfaces.api.schemas.common import Text
from paddock.interfaces.e2b.bodies import Body, Switch
from paddock.interfaces.e2b.marks import Mark, mark_of

_ALL = "0.0.0.0/0"
_EVERYTHING = frozenset({_ALL, "::/0"})
_OPEN = EgressWish(NetworkMode.OPEN)
_CLOSED = EgressWish(NetworkMode.NONE)
_GUEST_PORT = 49983

Port = Annotated[int, Field(ge=1, le=65535)]


class Transform(Body):
    """What is changed about a request."""

    headers: dict[Text, Text] = Field(default_factory=dict, repr=False)


class HostRule(Body):
    """One of the rules of a host."""

    transform: Transform | None = None


class Network(Body):
    """`network` of a create, and the body of an update, which has the switch in it as well."""

    allow_out: list[str] = Field(default_factory=list)
    deny_out: list[str] = Field(default_factory=list)
    dns_servers: Annotated[list[IPv4Address], Field(max_length=10)] | None = None
    rules: dict[Text, list[HostRule]] = Field(default_factory=dict)
    egress_proxy: dict[str, object] | None = Field(default=None, repr=False)
    https_ports: Annotated[list[Port], Field(max_length=20)] = Field(default_factory=list)
    allow_public_traffic: bool | None = None
    mask_request_host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:${}_-]{0,200}$")] = ""
    allow_internet_access: Switch = None


def unsaid(*, internet: bool) -> EgressWish:
    """What holds where the client says nothing: the installation's own rules, unless it was set to
    do as E2B does."""
    return _OPEN if internet else EgressWish()


def egress_of(
    network: Network | None, allow_internet: bool | None, default: EgressWish
) -> EgressWish:
    """The wish that does exactly what was asked for; Unsupported where there is none.

    E2B's rule is that an allowed destination wins over a denied one. What is neither is closed
    where all was denied, and else what the installation says: older SDKs ask for the internet in
    every create, so that asking for it opens nothing. Only what goes through the gateway can be
    denied in part, or get headers.
    """
    asked = network or Network()
    if asked.egress_proxy:
        raise Unsupported(
            "egressProxy cannot be enforced here: the gateway connects to the world itself",
            remediation="leave it out; the host's own routes may lead through a proxy",
        )
    if asked.allow_internet_access is not None:
        allow_internet = asked.allow_internet_access
    everything = bool(_EVERYTHING & set(asked.allow_out))
    if not everything and (_ALL in asked.deny_out or allow_internet is False):
        allowed = (*map(_rule, asked.allow_out), *_name_servers(asked))
        return _listed(allowed) if allowed else _CLOSED
    allowed = tuple(_rule(each) for each in asked.allow_out if each not in _EVERYTHING)
    denied = tuple(f"!{_rule(each)}" for each in asked.deny_out if each not in _EVERYTHING)
    if everything or default.mode is NetworkMode.OPEN:
        partly = (denied and not everything) or asked.rules
        return _listed((*allowed, *denied, *WHOLE_WORLD)) if partly else _OPEN
    if denied:
        return EgressWish(NetworkMode.ALLOWLIST, rules=(*allowed, *denied))
    return _listed(allowed) if allowed else default


def _listed(rules: Sequence[str]) -> EgressWish:
    """These, and nothing of the installation's own."""
    return EgressWish(NetworkMode.ALLOWLIST, preset="", rules=tuple(rules))


def _name_servers(asked: Network) -> Sequence[str]:
    """They are reached where names are allowed. Questions to any of them are answered by the
    gateway, so that nothing hangs on it; what else they serve is theirs."""
    by_name = any(parse(_rule(each)).host for each in asked.allow_out)
    return [f"{each}:*" for each in asked.dns_servers or ()] if by_name else []


def _rule(place: str) -> str:
    """There an address is meant with all of its ports, and a name with those of the web, as here;
    one that is denied is so on all."""
    try:
        network = ip_network(place.strip(), strict=False)
    except ValueError:
        return place
    return f"[{network}]:*" if network.version == 6 else f"{network}:*"


def described(sandbox: SandboxRecord, rules: dict[str, Any]) -> dict[str, Any]:
    """What holds for a sandbox, in E2B's words. `rules` are those about headers."""
    allowed, denied = _places(sandbox.egress)
    traffic, masked = mark_of(sandbox, Mark.TRAFFIC), mark_of(sandbox, Mark.MASKED_HOST)
    found = {
        "allowOut": allowed,
        "denyOut": denied,
        "rules": rules,
        "maskRequestHost": masked,
        "httpsPorts": sorted(https_ports(sandbox)),
    }
    told = {name: value for name, value in found.items() if value}
    return {**told, "allowPublicTraffic": traffic == "public"}


def _places(wish: EgressWish) -> tuple[list[str], list[str]]:
    if wish.mode is not NetworkMode.ALLOWLIST:
        return [], [_ALL] if wish.mode is NetworkMode.NONE else []
    allowed: list[str] = []
    denied: list[str] = []
    for rule in filter(None, (kept(text) for text in wish.rules if text not in WHOLE_WORLD)):
        (allowed if rule.allows else denied).append(rule.host or _shown(str(rule.network)))
    rest = wish.preset != "" or WHOLE_WORLD[0] in wish.rules
    return allowed, denied if rest else [_ALL]


def _shown(network: str) -> str:
    return network.removesuffix("/32" if "." in network else "/128")


def check_https_ports(asked: Network) -> None:
    """The guest's own speaks what it speaks."""
    if _GUEST_PORT in asked.https_ports:
        raise Unsupported(
            f"port {_GUEST_PORT} is the agent's of the sandbox, which speaks plain HTTP",
            remediation="name ports of your own programs",
        )


def https_ports(sandbox: SandboxRecord) -> frozenset[int]:
    """Ports at which programs inside speak TLS themselves."""
    return frozenset(map(int, filter(None, mark_of(sandbox, Mark.HTTPS_PORTS).split(","))))
