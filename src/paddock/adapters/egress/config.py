"""What an operator may set about egress."""

import ipaddress
from dataclasses import dataclass, field

from paddock.domain.egress import names, rule
from paddock.domain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class EgressConfig:
    """Settings under `[egress]`."""

    preset: str = "development"
    """The rules that an allowlist begins with where nobody says otherwise; empty begins with
    none."""
    hosts: dict[str, str] = field(default_factory=dict)
    """Addresses of names that are not to be asked a name server for, as in /etc/hosts."""
    certificates: str = ""
    """A file with authorities that vouch for hosts that credentials are sent to, beside those that
    this host trusts."""
    registries: tuple[str, ...] = ()
    """Rules for private addresses that images may be fetched from, such as `10.1.0.5:5000`. Public
    addresses need no rule."""
    gateway_uid: int = 99_990
    """Whom the gateway runs as: no user that has anything, and none of the sandboxes'."""

    ask_timeout_s: float = 300.0
    """How long a connection is held, and a person asked, where a policy says `ask`."""

    def __post_init__(self) -> None:
        for name, address in self.hosts.items():
            if names.normal(name) != name or not _is_address(address):
                raise InvalidRequest(
                    f"egress.hosts has {name!r} = {address!r}, which is no host name in lower case "
                    "with an address",
                    remediation='write it as "models.internal" = "10.0.0.5"',
                )
        for each in self.registries:
            rule.parse(each)
        if not 1 <= self.ask_timeout_s <= 3600:
            raise InvalidRequest(
                f"egress.ask_timeout_s is {self.ask_timeout_s:g}; it must be from 1 to 3600",
                remediation="300 gives a person five minutes",
            )
        if self.gateway_uid <= 0:
            raise InvalidRequest(
                f"egress.gateway_uid is {self.gateway_uid}, but the gateway has no privileges",
                remediation="set it to the number of a user that has nothing",
            )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
