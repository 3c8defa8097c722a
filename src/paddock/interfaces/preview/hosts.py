"""Host names of previews: `{port}-{sandbox}.{domain}`, in any case."""

import ipaddress
import re
from dataclasses import dataclass

from paddock.domain.errors import InvalidRequest
from paddock.domain.ids import dns_label, is_id

DEFAULT_DOMAIN = "preview.localhost"

_LABEL = re.compile(r"([1-9][0-9]{0,4})-([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)")
_MOST = 63
"""Characters that DNS allows between two dots."""


@dataclass(frozen=True, slots=True)
class PreviewHost:
    """What a preview's host name says: a port, and a sandbox by its id or its name."""

    port: int
    sandbox: str


def parse_preview_host(host: str, domain: str = DEFAULT_DOMAIN) -> PreviewHost | None:
    """None for every host that is no preview's; `host` comes without a port of its own."""
    label, _, parent = host.lower().removesuffix(".").partition(".")
    if parent != domain.lower() or len(label) > _MOST:
        return None
    found = _LABEL.fullmatch(label)
    if found is None or int(found[1]) > 65535:
        return None
    return PreviewHost(int(found[1]), _sandbox(found[2]))


def is_below(host: str, domain: str = DEFAULT_DOMAIN) -> bool:
    """Whether nothing but a preview can have this name. The domain itself may be the API's."""
    return host.lower().removesuffix(".").endswith(f".{domain.lower()}")


def is_loopback(host: str) -> bool:
    """Whether the name always means this machine, without DNS (RFC 6761)."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def preview_host(port: int, sandbox: str, domain: str = DEFAULT_DOMAIN) -> str:
    """The host name for a port of a sandbox, which is given by id or by name."""
    if not 1 <= port <= 65535:
        raise InvalidRequest(
            f"port {port} does not exist", remediation="name a port between 1 and 65535"
        )
    label = f"{port}-{dns_label(sandbox.lower())}"
    if not _LABEL.fullmatch(label):
        raise InvalidRequest(
            f"{sandbox[:80]!r} cannot stand in a host name",
            remediation="use the sandbox's id, or a name of a-z, 0-9 and -",
        )
    if len(label) > _MOST:
        raise InvalidRequest(
            f"{label!r} has {len(label)} characters; a host name has room for {_MOST}",
            remediation="use the sandbox's id, or a shorter name",
        )
    return f"{label}.{domain.lower()}"


def _sandbox(text: str) -> str:
    """An id has its underscore again; what does not look like an id is a name."""
    identifier = text.replace("-", "_", 1)
    return identifier if is_id(identifier, "sbx") else text
