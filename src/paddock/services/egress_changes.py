"""How rules about egress change: who may, and what the records say of before and after."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from paddock.domain.audit import AuditEntry
from paddock.domain.egress import EgressWish
from paddock.domain.egress.addresses import is_private
from paddock.domain.egress.policy import MOST_RULES, wish_of
from paddock.domain.egress.rule import parse
from paddock.domain.errors import Forbidden, InvalidRequest
from paddock.domain.event import Event, EventKind
from paddock.domain.team import Principal, Scope
from paddock.ports.store import Transaction

PREFIX = "egress."


class Holder(StrEnum):
    """Whose rules they are, the farthest first."""

    PRESET = "preset"
    TEMPLATE = "template"
    APP = "app"
    SANDBOX = "sandbox"


OPERATORS = (Holder.PRESET, Holder.TEMPLATE)
"""Holders whose rules only operators can change."""


@dataclass(frozen=True, slots=True)
class Held:
    """The rules of a preset, a template or an app."""

    holder: Holder
    name: str
    team_id: str
    shipped: EgressWish | None = None
    """What a preset has as long as nobody has changed it."""

    @property
    def key(self) -> str:
        return key_of(self.team_id, self.holder, self.name)

    def now(self, tx: Transaction) -> EgressWish | None:
        kept = tx.values.get(PREFIX + self.key)
        return self.shipped if kept is None else wish_of(kept)


def write(
    tx: Transaction, principal: Principal, held: Held, wish: EgressWish | None, *, now: float
) -> None:
    """None takes it away, if there is any."""
    if wish is None and tx.values.get(PREFIX + held.key) is None:
        return
    detail = {"of": held.holder, "name": held.name, **changed(held.now(tx), wish)}
    if wish is None:
        tx.values.remove(PREFIX + held.key)
    else:
        tx.values.put(PREFIX + held.key, asdict(wish))
    team, actor, kind = principal.team_id, principal.actor, EventKind.EGRESS_CHANGED
    tx.events.append([Event(team, kind, held.name, now, detail, actor)])
    tx.audit.append([AuditEntry(team, actor, kind, held.name, now, detail)])


def changed(before: EgressWish | None, after: EgressWish | None) -> dict[str, object]:
    """For the records."""
    told = described(after) if after is not None else {"removed": True}
    return {**told, "before": None if before is None else described(before)}


def described(wish: EgressWish) -> dict[str, object]:
    """What is wanted, for the records."""
    return {
        "mode": wish.mode,
        "preset": wish.preset,
        "rules": list(wish.rules),
        "on_block": wish.on_block,
    }


def with_rules(wish: EgressWish, rules: Sequence[str]) -> EgressWish:
    """These first."""
    new = [parse(rule).text for rule in rules]
    return replace(wish, rules=tuple(dict.fromkeys((*new, *wish.rules))))


def check_rules(principal: Principal, rules: Sequence[str]) -> None:
    """All can be read, and none opens what only an operator may: the networks of the host."""
    if len(rules) > MOST_RULES:
        raise InvalidRequest(
            f"there are {len(rules)} rules; {MOST_RULES} is the most",
            remediation="allow a whole domain with `*.example.org` instead of its hosts",
        )
    for text in rules:
        rule = parse(text)
        if rule.allows and rule.network is not None and is_private(rule.network):
            _check_operator(principal, text)


def _check_operator(principal: Principal, text: str) -> None:
    if not principal.operator:
        raise Forbidden(
            f"the rule {text} is for private addresses, which belong to who runs the installation",
            remediation="ask an operator to set it on the sandbox, its template or a preset",
        )


def check_may_change(principal: Principal, holder: Holder) -> None:
    principal.require(Scope.POLICIES_WRITE)
    if holder in OPERATORS and not principal.operator:
        raise Forbidden(
            f"a {holder} is the whole installation's, so only its operators set rules on it",
            remediation="set them on an app or on a sandbox",
        )


def key_of(team_id: str, holder: Holder, name: str) -> str:
    return f"{holder}.{team_id}.{name}" if holder is Holder.APP else f"{holder}.{name}"
