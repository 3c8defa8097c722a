"""The credentials of one sandbox: where each may go, and what must never come back."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from paddock.domain.broker.binding import host_rule
from paddock.domain.broker.forms import forms
from paddock.domain.egress import names
from paddock.domain.egress.rule import Rule
from paddock.gateway.protocol import Credential
from paddock.gateway.redacting import NOTHING, Matcher

_MOST_RETIRED = 32


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
    retired: tuple[tuple[bytes, bytes], ...] = ()
    """Values of before, which answers that are under way may still hold."""

    @classmethod
    def of(cls, told: Iterable[Credential], before: "Credentials") -> "Credentials":
        made = tuple(Bound(each, tuple(map(host_rule, each.hosts))) for each in told)
        new = {(each.credential.value, each.credential.placeholder) for each in made}
        old = [(value, shown) for value, shown in before.plain if (value, shown) not in new]
        retired = [(value.encode(), shown.encode()) for value, shown in old]
        return cls(made, (*before.retired, *retired)[-_MOST_RETIRED:])

    @property
    def plain(self) -> list[tuple[str, str]]:
        found = ((each.credential.value, each.credential.placeholder) for each in self.bound)
        return [(value, shown) for value, shown in found if value and shown]

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

    @cached_property
    def needles(self) -> dict[bytes, bytes]:
        """Every form in which a server may give a value back, with what stands for it."""
        pairs = [(value.encode(), shown.encode()) for value, shown in self.plain]
        return {form: shown for value, shown in (*self.retired, *pairs) for form in forms(value)}

    @cached_property
    def matcher(self) -> Matcher:
        """Of all of these; one for every answer."""
        return Matcher(self.needles) if self.needles else NOTHING
