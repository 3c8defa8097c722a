"""The credentials of one sandbox: where each may go, and what must not come back from there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paddock.domain.broker.binding import host_rule
from paddock.domain.broker.forms import forms
from paddock.domain.egress import names
from paddock.domain.egress.rule import Rule
from paddock.gateway.protocol import Credential
from paddock.gateway.redacting import Matcher

_MOST_MATCHERS = 4
Pair = tuple[bytes, bytes]
"""A value and its placeholder."""


@dataclass(frozen=True)
class Bound:
    """A credential, and the hosts that it is bound to."""

    credential: Credential
    hosts: tuple[Rule, ...]

    def fits(self, name: str, port: int) -> bool:
        return any(rule.is_about(name, "", port) for rule in self.hosts)

    @property
    def nearness(self) -> int:
        """Of a host that fits, how near it is: one that is named in full, or the longest domain."""
        host = self.hosts[0].host
        return len(host) if host.startswith("*") else names.LONGEST + 1


@dataclass(frozen=True)
class Credentials:
    """All of one sandbox. Replaced as a whole."""

    bound: tuple[Bound, ...] = ()

    @classmethod
    def of(cls, told: Iterable[Credential]) -> "Credentials":
        # The route alone determines the host, never the name that a program sends.
        bound = (Bound(e, () if e.plain else tuple(map(host_rule, e.hosts))) for e in told)
        return cls(tuple(bound))

    def of_host(self, name: str, port: int) -> list[Credential]:
        """Headers of the sandbox's own come last, over what others have put in."""
        if not name:
            return []
        fitting = [e for e in self.bound if not e.credential.route and e.fits(name, port)]
        own = [each for each in fitting if each.credential.own]
        nearest = max((each.nearness for each in own), default=0)
        return [
            *(each.credential for each in fitting if not each.credential.own),
            *(each.credential for each in own if each.nearness == nearest),
        ]


class Matchers:
    """A cache of matchers: most connections of a sandbox use the same values."""

    def __init__(self) -> None:
        self._made: dict[tuple[Pair, ...], Matcher] = {}

    def of(self, pairs: Sequence[Pair]) -> Matcher:
        """Return a matcher for every form in which a server may return one of these values."""
        key = tuple(pairs)
        found = self._made.pop(key, None) or _matcher(key)
        self._made[key] = found
        if len(self._made) > _MOST_MATCHERS:
            del self._made[next(iter(self._made))]
        return found

    def clear(self) -> None:
        """Forget all matchers, because the values have changed."""
        self._made.clear()


def _matcher(pairs: Sequence[Pair]) -> Matcher:
    return Matcher({form: shown for value, shown in pairs for form in forms(value)})
