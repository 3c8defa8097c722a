"""One rule: what it is about, read from the form in which people write it.

api.example.com             the host, on the web's ports 80 and 443
*.example.org:443           every host below example.org, not example.org itself
git.example.com:22,443      ports; also 8000-8100, and * for any
10.1.0.0/16:5432            addresses
GET http://host/path/**     requests; plain HTTP only, since nobody can look into TLS
!host                       denied, on every port unless some are named
"""

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from paddock.domain.egress import names, paths
from paddock.domain.errors import InvalidRequest

TLS_PORT = 443
WEB = ((80, 80), (TLS_PORT, TLS_PORT))
ANY_PORT = ((1, 65535),)
LONGEST = 500
_URL = re.compile(r"(?:(?P<methods>[A-Za-z,*-]+)\s+)?(?P<scheme>https?)://(?P<rest>\S+)", re.I)
_METHOD = re.compile(r"[A-Z]{1,24}(-[A-Z]{1,24})?")
_FORMS = "write it as `host`, `*.domain:443`, `10.1.0.0/16:5432` or `GET http://host/path/**`"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is allowed or denied. Exactly one of `host` and `network` is set."""

    allows: bool
    host: str = ""
    """A name, `*.domain` or `*`."""
    network: Network | None = None
    ports: Ranges = WEB
    methods: tuple[str, ...] = ()
    """Empty is any."""
    path: str = ""
    """A pattern; empty is any."""
    text: str = ""
    by_operator: bool = False
    """Whether an operator has set it."""

    @property
    def looks_at_requests(self) -> bool:
        """Whether it is about requests, not about connections."""
        return bool(self.methods or self.path)

    @property
    def is_https(self) -> bool:
        """Whether the rule was written with `https://`: it then means TLS on any port it names."""
        url = _URL.fullmatch(self.text.removeprefix("!"))
        return url is not None and url["scheme"].lower() == "https"

    def is_about(self, name: str, address: str, port: int) -> bool:
        """Whether a connection to that name, or to that literal address, is what it is about."""
        if not any(first <= port <= last for first, last in self.ports):
            return False
        if self.network is None:
            return bool(name) and names.fits(self.host, name)
        return not name and bool(address) and ipaddress.ip_address(address) in self.network

    def is_about_request(self, method: str, path: str) -> bool:
        if self.methods and method not in self.methods:
            return False
        return not self.path or paths.fits(self.path, path, ambiguous=not self.allows)


@lru_cache(maxsize=4096)
def parse(text: str) -> Rule:
    """The rule. InvalidRequest that says what is wrong with it."""
    bare = text.strip()
    if not bare or len(bare) > LONGEST or not bare.isprintable():
        _refuse(text, "it is empty, too long or not printable")
    allows = not bare.startswith("!")
    bare = bare.removeprefix("!").strip()
    shown = bare if allows else f"!{bare}"
    if (url := _URL.fullmatch(bare)) is not None:
        return _of_url(shown, url, allows=allows)
    if " " in bare or "://" in bare:
        _refuse(text, "it is neither a host nor a request")
    host, network, ports = _target(text, bare)
    return Rule(allows, host, network, ports or (WEB if allows else ANY_PORT), text=shown)


def kept(text: str) -> Rule | None:
    """A rule that was stored, maybe by a version that read more than this one. What is not read any
    more allows nothing, and denies the whole host rather than none of it."""
    if is_readable(text):
        return parse(text)
    if not text.strip().startswith("!"):
        return None
    url = _URL.fullmatch(text.strip().removeprefix("!").strip())
    whole = f"!{url['rest'].partition('/')[0]}" if url else ""
    return parse(whole if is_readable(whole) else "!*")


@lru_cache(maxsize=4096)
def is_readable(text: str) -> bool:
    try:
        parse(text)
    except InvalidRequest:
        return False
    return True


def _of_url(text: str, url: re.Match[str], *, allows: bool) -> Rule:
    secure = url["scheme"].lower() == "https"
    authority, slash, path = url["rest"].partition("/")
    path = slash + path
    methods = _methods(text, url["methods"] or "")
    host, network, ports = _target(text, authority)
    if network is not None and network.num_addresses > 1:
        _refuse(text, "a request goes to one host or address")
    default = ((TLS_PORT, TLS_PORT),) if secure else ((80, 80),)
    if secure and (methods or path.strip("/*")):
        _refuse(
            text,
            "nobody can look into TLS to see methods and paths",
            f"allow the host as a whole with `{authority}:443`, or the request by http://",
        )
    pattern = "" if secure or path in ("", "/**") else paths.checked(path)
    if pattern is None:
        _refuse(text, "its path is not a plain one", "write it as `/v1/items/*` or `/v1/**`")
    return Rule(allows, host, network, ports or default, methods, pattern, text)


def _methods(text: str, said: str) -> tuple[str, ...]:
    found = tuple(sorted({each.upper() for each in said.split(",") if each}))
    if found in ((), ("*",)):
        return ()
    if not all(map(_METHOD.fullmatch, found)):
        _refuse(text, f"{said!r} are no methods", "write them as `GET,HEAD http://host/path`")
    return found


def _target(text: str, target: str) -> tuple[str, Network | None, Ranges]:
    """The host or the network, and the ports, if any are named."""
    where, ports = _split(target)
    ranges = _ranges(text, ports) if ports else ()
    if where == "*" or (where.startswith("*.") and names.normal(where[2:])):
        return ("*" if where == "*" else f"*.{names.normal(where[2:])}"), None, ranges
    if "*" in where:
        _refuse(text, "a * stands for whole labels, at the beginning", "such as `*.example.org`")
    if name := names.normal(where):
        return name, None, ranges
    try:
        return "", ipaddress.ip_network(where), ranges
    except ValueError as error:
        why = str(error) if "/" in where or ":" in where else f"{where!r} is no host name"
        _refuse(text, why)


def _split(target: str) -> tuple[str, str]:
    if target.startswith("["):
        where, _, rest = target[1:].partition("]")
        return where, rest.removeprefix(":")
    if target.count(":") > 1:
        return target, ""
    where, _, ports = target.partition(":")
    return where, ports


def _ranges(text: str, ports: str) -> Ranges:
    if ports == "*":
        return ANY_PORT
    found = []
    for part in ports.split(","):
        first, dash, last = part.partition("-")
        numbers = (first, last if dash else first)
        if not all(n.isascii() and n.isdigit() and 1 <= int(n) <= 65535 for n in numbers):
            _refuse(text, f"{part!r} is no port", "ports are 1 to 65535: `443`, `80,443`, `1-1024`")
        found.append((int(numbers[0]), int(numbers[1])))
        if found[-1][0] > found[-1][1]:
            _refuse(text, f"the range {part!r} ends before it begins", "write the lower port first")
    return tuple(sorted(found))


def _refuse(text: str, why: str, remediation: str = _FORMS) -> NoReturn:
    raise InvalidRequest(f"the rule {text[:120]!r} is not usable: {why}", remediation=remediation)
