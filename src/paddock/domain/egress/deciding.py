"""What becomes of a connection or a request: the first rule that fits decides."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.domain.egress import names
from paddock.domain.egress.rule import ANY_PORT, TLS_PORT, Rule


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, and by which rule; None where none fits."""

    allowed: bool
    rule: Rule | None = None

    @property
    def by(self) -> str:
        return self.rule.text if self.rule else ""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a new connection may become."""

    whole: Decision
    """For whatever is spoken on it."""
    requests: bool = False
    """Rules about requests come first: plain HTTP is judged request by request."""

    @property
    def is_hopeless(self) -> bool:
        return not self.whole.allowed and not self.requests


def judge_connection(rules: Sequence[Rule], name: str, address: str, port: int) -> Opening:
    """Of a connection to a name, or, without one, to a literal address."""
    requests = False
    for rule in rules:
        if not rule.is_about(name, address, port):
            continue
        if not rule.looks_at_requests:
            return Opening(Decision(rule.allows, rule), requests)
        requests = requests or rule.allows
    return Opening(Decision(allowed=False), requests)


def is_for_tls(rule: Rule | None, port: int) -> bool:
    """Whether a connection that this rule allows must begin as TLS, HTTP or SSH."""
    return port == TLS_PORT or (rule is not None and rule.is_https)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of plain HTTP, by what it is for."""

    name: str
    address: str
    port: int
    method: str
    path: str


def judge_request(rules: Sequence[Rule], asked: Asked) -> Decision:
    for rule in rules:
        if not rule.is_about(asked.name, asked.address, asked.port):
            continue
        if rule.is_about_request(asked.method, asked.path):
            return Decision(rule.allows, rule)
    return Decision(allowed=False)


def may_resolve(rules: Sequence[Rule], name: str) -> bool:
    """Whether some connection to that name could be allowed: then, and only then, it exists."""
    for rule in rules:
        if rule.network is not None or not names.fits(rule.host, name):
            continue
        if rule.allows:
            return True
        if rule.ports == ANY_PORT and not rule.looks_at_requests:
            return False
    return False


def shadowed(rules: Sequence[Rule]) -> list[tuple[Rule, Rule]]:
    """Rules that never decide anything, each with the earlier one that always does."""
    found = []
    for number, rule in enumerate(rules):
        earlier = next((each for each in rules[:number] if _covers(each, rule)), None)
        if earlier is not None:
            found.append((rule, earlier))
    return found


def overtaken(rules: Sequence[Rule]) -> list[tuple[Rule, Rule]]:
    """Denials that hold for some ports only, each with the earlier one that allows the others."""
    return [
        (rule, earlier)
        for number, rule in enumerate(rules)
        for earlier in rules[:number]
        if earlier.allows and not rule.allows and _covers_some(earlier, rule)
    ]


def _covers_some(earlier: Rule, later: Rule) -> bool:
    shared = any(
        first <= last_of_later and first_of_later <= last
        for first, last in earlier.ports
        for first_of_later, last_of_later in later.ports
    )
    about_all = not earlier.looks_at_requests
    return shared and about_all and _covers_target(earlier, later) and not _covers(earlier, later)


def _covers(earlier: Rule, later: Rule) -> bool:
    return (
        _covers_target(earlier, later)
        and all(_within(span, earlier) for span in later.ports)
        and (
            not earlier.methods
            or (bool(later.methods) and set(later.methods) <= set(earlier.methods))
        )
        and earlier.path in ("", later.path)
    )


def _covers_target(earlier: Rule, later: Rule) -> bool:
    if earlier.network is None or later.network is None:
        same_kind = earlier.network is None and later.network is None
        return same_kind and names.covers(earlier.host, later.host)
    if earlier.network.version != later.network.version:
        return False
    return later.network.subnet_of(earlier.network)  # type: ignore[arg-type]


def _within(span: tuple[int, int], rule: Rule) -> bool:
    return any(first <= span[0] and span[1] <= last for first, last in rule.ports)
