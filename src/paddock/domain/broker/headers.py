"""Headers of a sandbox's own: put into its requests outside, in place of what programs send."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from paddock.domain.broker.binding import LARGEST_VALUE, check_header, host_rule
from paddock.domain.errors import InvalidRequest

MOST = 64
"""Of one sandbox."""
_CREDENTIAL = re.compile(r"auth|cookie|credential|jwt|key|pass|secret|session|sign|token", re.I)
_LETS_IN = re.compile(r"(?:apikey|basic|bearer|digest|negotiate|token) ", re.I)
_BETWEEN = re.compile(r"[ /._:;,()-]+")
_WORD = re.compile(r"[A-Z]?[a-z]{0,15}|[A-Z]{1,16}|[0-9]{1,4}")
_LONGEST_PLAIN, _MOST_DIGITS = 24, 8
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9-]{0,30}) (?P<value>\S+)")


@dataclass(frozen=True, slots=True)
class OwnHeader:
    """One header of requests to one host, or to all below a domain."""

    host: str
    """As a binding names it. Of several that fit a request the nearest counts, and no other."""
    header: str
    format: str = "{}"
    """What the header has, with `{}` where the value belongs."""
    secret: str = ""
    """The team's secret that is the value; empty where `value` is."""
    value: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """What records call it."""
        return self.secret or f"header {self.header}"

    @property
    def is_secret(self) -> bool:
        """Whether the value must not come back in answers. A header that only says something, such
        as `X-Environment: production`, has words that answers are full of."""
        if self.secret or _CREDENTIAL.search(self.header):
            return True
        whole = self.format.replace("{}", self.value)
        return bool(_LETS_IN.match(whole)) or not _is_plain(whole)


def _is_plain(value: str) -> bool:
    """Short words and numbers, as in a version, a date or a site's address. Whatever else it is may
    be what lets somebody in, and costs little to keep back."""
    text = value.removeprefix("https://").removeprefix("http://")
    digits = sum(map(str.isdigit, text))
    short = len(text) <= _LONGEST_PLAIN and digits <= _MOST_DIGITS
    return short and all(map(_WORD.fullmatch, _BETWEEN.split(text)))


def checked(headers: Iterable[OwnHeader]) -> tuple[OwnHeader, ...]:
    """As they are kept, one of each name and host: the last. InvalidRequest for what is wrong."""
    found = {}
    for each in map(_checked, headers):
        found[each.host, each.header.lower()] = each
    if len(found) > MOST:
        raise InvalidRequest(
            f"a sandbox would have {len(found)} headers of its own; {MOST} is the most",
            remediation="use `*.example.org` instead of its hosts",
        )
    return tuple(found.values())


def _checked(header: OwnHeader) -> OwnHeader:
    host = host_rule(header.host)
    check_header(header.header, header.format)
    if not header.header or bool(header.secret) == bool(header.value):
        raise InvalidRequest(
            f"the header {header.header[:80]!r} for {host.text} has no name or no value",
            remediation="give both, as in `X-Api-Key: abc`",
        )
    value = header.value
    if len(value) > LARGEST_VALUE or not value.isprintable() or not value.isascii():
        raise InvalidRequest(
            f"the value of the header {header.header} for {host.text} is not usable",
            remediation=f"it is one line of ASCII, and has at most {LARGEST_VALUE} characters",
        )
    port = host.text.rpartition(":")[2] if ":" in host.text else ""
    return _apart(replace(header, host=f"{host.host}:{port}" if port else host.host))


def _apart(header: OwnHeader) -> OwnHeader:
    """`Bearer abc` is a form and a value: a server may well give `abc` back by itself."""
    found = _SCHEME.fullmatch(header.value)
    if header.format != "{}" or found is None or not header.is_secret:
        return header
    return replace(header, format=f"{found['scheme']} {{}}", value=found["value"])


def hosts_of(headers: Sequence[OwnHeader]) -> list[str]:
    """For the records."""
    return sorted({each.host for each in headers})
