"""The policy in force: what preset, template, app and sandbox want, put together.

The nearest that says a mode decides it. Denials bind whoever is nearer: an operator's `!host` on a
template or a preset holds for every sandbox of it, and where there is one, an open network is
everything but that, through the gateway. Otherwise the nearest is asked first. What people have
allowed for a task comes last: no rule was about it then, and no denial yields to it later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from paddock.domain.egress.deciding import overtaken, shadowed
from paddock.domain.egress.policy import (
    MOST_RULES,
    WHOLE_WORLD,
    EgressPolicy,
    EgressWish,
    NetworkMode,
    OnBlock,
    SourcedRule,
)
from paddock.domain.egress.rule import Rule, is_readable, kept, parse


@dataclass(frozen=True, slots=True)
class Say:
    """What one of those who have a say wants; the farthest first in a list of them."""

    source: str
    wish: EgressWish
    is_operator: bool = False
    """Whether only operators can change it."""


@dataclass(frozen=True, slots=True)
class Effective:
    """The policy in force, and where its mode comes from."""

    policy: EgressPolicy
    mode_from: str
    warnings: tuple[str, ...] = ()
    on_block_from: str = "default"
    wanted: NetworkMode = NetworkMode.NONE
    """The mode as it was said: the one in force is an allowlist where `open` has exceptions."""


def combined(
    says: Sequence[Say], default: NetworkMode, granted: Sequence[SourcedRule] = ()
) -> Effective:
    """From the farthest (a preset) to the nearest (the sandbox's own)."""
    return _combined(tuple(says), default, tuple(granted))


@lru_cache(maxsize=256)  # most sandboxes of an installation want the same
def _combined(
    says: tuple[Say, ...], default: NetworkMode, granted: tuple[SourcedRule, ...]
) -> Effective:
    mode, mode_from = default, "default"
    for say in says:
        if say.wish.mode is not None:
            mode, mode_from = say.wish.mode, say.source
    if mode is NetworkMode.OPEN and (denied := _binding(says)):
        rest = [SourcedRule(text, mode_from) for text in WHOLE_WORLD]
        policy = EgressPolicy(NetworkMode.ALLOWLIST, (*denied, *rest))
        return Effective(policy, mode_from, wanted=mode)
    if mode is not NetworkMode.ALLOWLIST:
        return Effective(EgressPolicy(mode), mode_from, wanted=mode)
    rules = _ordered(says)
    on_block, on_block_from = _on_block(says)
    room = max(0, MOST_RULES - len(rules))  # whoever may have more rules since is not held up
    policy = EgressPolicy(mode, (*rules, *granted[:room]), on_block)
    told = (*_unread(says), *warnings(rules))
    return Effective(policy, mode_from, told, on_block_from, mode)


def _on_block(says: Sequence[Say]) -> tuple[OnBlock, str]:
    for say in reversed(says):
        if say.wish.on_block is not None:
            return say.wish.on_block, say.source
    return OnBlock.DENY, "default"


def _ordered(says: Sequence[Say]) -> tuple[SourcedRule, ...]:
    """First the denials that bind; then all, the nearest first."""
    others = [
        SourcedRule(rule.text, say.source, say.is_operator)
        for say in reversed(says)
        for rule in _rules(say)
        if rule.allows or say is says[-1]
    ]
    return tuple(dict.fromkeys((*_binding(says), *others)))


def _binding(says: Sequence[Say]) -> tuple[SourcedRule, ...]:
    """The denials of all but the nearest, the farthest first."""
    found = [
        SourcedRule(rule.text, say.source, say.is_operator)
        for say in says[:-1]
        for rule in _rules(say)
        if not rule.allows
    ]
    return tuple(dict.fromkeys(found))


def _rules(say: Say) -> list[Rule]:
    return [rule for text in say.wish.rules if (rule := kept(text)) is not None]


def _unread(says: Sequence[Say]) -> list[str]:
    """A stored rule that this version does not read must not take all others along."""
    return [
        f"the rule {text} of the {say.source} is not readable any more: "
        + (f"{rule.text} holds in its place" if (rule := kept(text)) else "it allows nothing")
        for say in says
        for text in say.wish.rules
        if not is_readable(text)
    ]


def preset_of(says: Sequence[Say], default: str) -> str:
    """The name of the preset to begin with."""
    return next((s.wish.preset for s in reversed(says) if s.wish.preset is not None), default)


def warnings(rules: Sequence[SourcedRule]) -> tuple[str, ...]:
    """What somebody who wrote these rules may not have meant."""
    source = {parse(rule.text): rule.source for rule in reversed(rules)}
    parsed = [parse(rule.text) for rule in rules]
    never = [
        f"the rule {later.text} of the {source[later]} never decides: {earlier.text} of the "
        f"{source[earlier]} comes first and covers it"
        for later, earlier in shadowed(parsed)
        if later.allows != earlier.allows or source[later] == source[earlier]
    ]
    partly = [
        f"the rule {later.text} of the {source[later]} does not hold where {earlier.text} of the "
        f"{source[earlier]} comes first: put it before that one"
        for later, earlier in overtaken(parsed)
    ]
    return (*never, *partly)


def warnings_about(source: str, wish: EgressWish) -> tuple[str, ...]:
    """The same of what one wants that is not the nearest."""
    alone = [Say(source, replace(wish, mode=NetworkMode.ALLOWLIST)), Say("", EgressWish())]
    return combined(alone, NetworkMode.ALLOWLIST).warnings
