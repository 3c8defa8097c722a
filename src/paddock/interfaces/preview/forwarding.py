"""Who a request really comes from and how the outside sees us, and what upstreams are told."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from paddock.domain.errors import InvalidRequest

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)\.?(?::([0-9]{1,5}))?")
_PAIR = re.compile(r'(for|host|proto)=("(?:[^"\\]|\\.)*"|[^;,\s"]+)', re.I)


@dataclass(frozen=True, slots=True)
class Origin:
    """Both ends as the outside has them, and the header lines that say so to an upstream."""

    client: str
    scheme: str
    host: str
    authority: str
    block: bytes


class Forwarding:
    """Reads and writes the forwarding headers, for one listener. ValueError for a bad Host.

    A trusted proxy's word is kept and extended; everyone else's is replaced, because a client
    may write there what it likes.
    """

    def __init__(self, trusted_proxies: Iterable[str] = (), public_url: str = "") -> None:
        self._trusted = [_network(text) for text in trusted_proxies]
        self._scheme, self._port = _public(public_url)

    def trusts(self, address: str) -> bool:
        if not self._trusted:
            return False
        found = _address(address)
        return found is not None and any(found in network for network in self._trusted)

    def direct(self, peer: str, host: str, scheme: str = "") -> Origin:
        """For a peer whose own forwarding headers are worth nothing; `scheme` is known for what
        came by TLS."""
        seen = scheme or self._scheme or "http"
        return self._origin([peer] if peer else [], seen, host, peer)

    def relayed(self, peer: str, host: str, given: Mapping[bytes, bytes]) -> Origin:
        """For a trusted proxy; `given` are its forwarding headers, by names in lower case."""
        if split_host(host) is None:
            raise ValueError(host)
        text = {name: value.decode("latin-1").strip() for name, value in given.items()}
        forwarded = text.get(b"forwarded", "")
        pairs = [(name.lower(), value.strip('"')) for name, value in _PAIR.findall(forwarded)]
        first = dict(reversed(pairs))
        chain = _listed(text.get(b"x-forwarded-for", "")) or [
            value for name, value in pairs if name == "for"
        ]
        chain.append(peer)
        scheme = _first(text.get(b"x-forwarded-proto") or first.get("proto", "")).lower()
        scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
        named = _first(text.get(b"x-forwarded-host") or first.get("host", "")).lower()
        port = text.get(b"x-forwarded-port", "")
        return self._origin(
            chain,
            scheme if scheme in _PORTS else self._scheme or "http",
            named if split_host(named) else host,
            self._client(chain),
            port=int(port) if port.isdecimal() and 0 < int(port) < 65536 else None,
            forwarded=forwarded,
        )

    def _client(self, chain: list[str]) -> str:
        """The last address that is not one of our proxies: what is left of it may be made up."""
        for text in reversed(chain):
            if (found := _address(text)) is None:
                break
            if not self.trusts(str(found)):
                return str(found)
        return chain[-1]

    def _origin(
        self,
        chain: list[str],
        scheme: str,
        host: str,
        client: str,
        *,
        port: int | None = None,
        forwarded: str = "",
    ) -> Origin:
        found = split_host(host)
        if found is None:
            raise ValueError(host)
        name, own = found
        public = self._port if scheme == self._scheme else None
        own = public or own or port or _PORTS[scheme]
        authority = name if own == _PORTS[scheme] else f"{name}:{own}"
        elements = [f"for={_node(address)}" for address in chain] or ["for=unknown"]
        if forwarded:
            elements = [forwarded, elements[-1]]
        else:
            elements[0] += f';host="{authority}";proto={scheme}'
        lines = [f"X-Forwarded-For: {', '.join(chain)}"] if chain else []
        lines += [
            f"X-Forwarded-Proto: {scheme}",
            f"X-Forwarded-Host: {authority}",
            f"X-Forwarded-Port: {own}",
            f"Forwarded: {', '.join(elements)}",
        ]
        block = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
        return Origin(client, scheme, name, authority, block)


def split_host(value: str) -> tuple[str, int | None] | None:
    """A Host header's name, in lower case and without a final dot, and port; None if malformed."""
    found = _HOST.fullmatch(value.lower())
    if found is None or (found[2] and not 0 < int(found[2]) < 65536):
        return None
    return found[1], int(found[2]) if found[2] else None


def counted_as(address: str) -> str:
    """Whose connections are counted together: one IPv4 address, or an IPv6 network of a host."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((found, 64), strict=False))
    return address


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise InvalidRequest(
            f"trusted_proxies has {text!r}, which is no network",
            remediation="write an address or a CIDR such as 10.0.0.0/8",
        ) from error


def _public(url: str) -> tuple[str, int | None]:
    if not url:
        return "", None
    try:
        parts = urlsplit(url)
        if parts.scheme in _PORTS and parts.hostname:
            return parts.scheme, parts.port or _PORTS[parts.scheme]
    except ValueError:
        pass
    raise InvalidRequest(
        f"public_url is {url!r}, which is no address of a web server",
        remediation="write it as https://host or https://host:port",
    )


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address as forwarding headers write it: in brackets, with a port, or with a zone."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _node(address: str) -> str:
    """An address as `Forwarded` wants it; anything odd is quoted so that it stays one value."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found is not None:
        return f'"[{found}]"'
    return address if re.fullmatch(r"[\w.-]+", address, re.ASCII) else '"unknown"'


def _listed(text: str) -> list[str]:
    return [part for part in (piece.strip() for piece in text.split(",")) if part]


def _first(text: str) -> str:
    return text.partition(",")[0].strip()
