"""Egress policies as the API shows and takes them."""

import ipaddress
import re
from typing import Annotated

from pydantic import Field

from paddock.domain.egress import EgressWish, NetworkMode, OnBlock, names
from paddock.domain.egress.asking import may_be_asked_for
from paddock.domain.egress.combining import warnings_about
from paddock.domain.egress.deciding import Asked, Decision
from paddock.domain.egress.policy import MOST_RULES
from paddock.domain.egress.rule import LONGEST
from paddock.domain.errors import InvalidRequest
from paddock.interfaces.api.schemas.common import Shape, Text
from paddock.services.egress import Standing

RuleText = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=LONGEST,
        description="`host`, `*.domain:443`, `10.1.0.0/16:5432`, `GET http://host/path/**`; "
        "`!` before it denies",
        examples=["api.example.com", "*.example.org:443", "!tracker.example.com"],
    ),
]
Rules = Annotated[list[RuleText], Field(max_length=MOST_RULES)]
Preset = Annotated[
    str | None,
    Field(
        max_length=63,
        description="the rules to begin with; empty begins with none, null leaves it to others",
    ),
]
_URL = re.compile(r"(?:(https?)://)?([^/?#\s]+)([^#\s]*)", re.I)
_PORTS = {"http": 80, "https": 443, "": 443}

_NAMED = 5


class EgressWishShape(Shape):
    """What is wanted; what is left out is left to those that have a say as well."""

    mode: NetworkMode | None = None
    preset: Preset = None
    rules: Rules = Field(default_factory=list)
    on_block: OnBlock | None = Field(
        None, description="`ask` holds a connection that no rule is about, and asks people"
    )

    def read(self) -> EgressWish:
        return EgressWish(self.mode, self.preset, tuple(self.rules), self.on_block)


class EgressHeldShape(EgressWishShape):
    """What an app, a template or a preset has of its own."""

    warnings: list[str] = Field(
        description="rules that never decide anything and shipped rules that are gone, and why"
    )


class AllowRules(Shape):
    """Rules to be put before those that a sandbox has."""

    rules: Annotated[list[RuleText], Field(min_length=1, max_length=MOST_RULES)]


class SourcedRuleShape(Shape):
    """A rule in force, and whose it is."""

    rule: str
    source: str = Field(examples=["preset development", "template base", "app shop", "sandbox"])


class EgressStandingShape(Shape):
    """What is in force for a sandbox: the first rule that fits decides."""

    mode: NetworkMode
    mode_from: str
    preset: str
    on_block: OnBlock
    on_block_from: str
    own: EgressWishShape
    rules: list[SourcedRuleShape]
    warnings: list[str] = Field(description="rules that never decide anything, and why")


class EgressTrial(Shape):
    """A connection or a request that is not made."""

    url: Annotated[
        Text, Field(min_length=1, max_length=2048, examples=["https://api.example.com/v1"])
    ]
    method: Annotated[str, Field(max_length=24, pattern="^[A-Z-]*$")] = ""

    def read(self) -> Asked:
        """Of http:// the request is judged; of everything else the connection."""
        found = _URL.fullmatch(self.url)
        if found is None:
            raise self._unusable()
        scheme, authority, path = (found[1] or "").lower(), found[2], found[3] or "/"
        host, _, port = authority.partition(":")
        number = int(port) if port.isascii() and port.isdigit() else _PORTS[scheme]
        if not 1 <= number <= 65535 or (port and not port.isdigit()):
            raise self._unusable()
        method = self.method or ("GET" if scheme == "http" else "")
        method = "" if scheme == "https" else method
        if name := names.normal(host):
            return Asked(name, "", number, method, path)
        try:
            return Asked("", str(ipaddress.IPv4Address(host)), number, method, path)
        except ValueError:
            raise self._unusable() from None

    def _unusable(self) -> InvalidRequest:
        return InvalidRequest(
            f"{self.url[:120]!r} is no place that can be connected to",
            remediation="write it as `host`, `host:port` or `https://host/path`",
        )


class EgressDecisionShape(Shape):
    """What would become of it."""

    allowed: bool
    asked: bool = Field(description="people would be asked")
    host: str
    port: int
    rule: str | None = Field(description="the one that decided; null where none fits")
    source: str | None = Field(description="whose it is")


class PresetNames(Shape):
    """The presets there are."""

    items: list[str]


def show_wish(wish: EgressWish) -> EgressWishShape:
    return EgressWishShape.model_construct(
        mode=wish.mode, preset=wish.preset, rules=list(wish.rules), on_block=wish.on_block
    )


def show_preset(wish: EgressWish, name: str, shipped: EgressWish | None) -> EgressHeldShape:
    """Return a preset, with a warning if it omits built-in rules."""
    shown = show_held(wish, f"preset {name}")
    gone = [rule for rule in (shipped.rules if shipped else ()) if rule not in wish.rules]
    if gone:
        more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
        shown.warnings.append(
            f"preset {name} omits {len(gone)} built-in rules: "
            f"{', '.join(gone[:_NAMED])}{more}; `paddock egress rm --preset {name}` restores "
            "them and deletes your own"
        )
    return shown


def show_held(wish: EgressWish, source: str) -> EgressHeldShape:
    return EgressHeldShape.model_construct(
        mode=wish.mode,
        preset=wish.preset,
        rules=list(wish.rules),
        on_block=wish.on_block,
        warnings=list(warnings_about(source, wish)),
    )


def show_standing(standing: Standing) -> EgressStandingShape:
    effective = standing.effective
    return EgressStandingShape(
        mode=effective.policy.mode,
        mode_from=effective.mode_from,
        preset=standing.preset,
        on_block=effective.policy.on_block,
        on_block_from=effective.on_block_from,
        own=show_wish(standing.own),
        rules=[SourcedRuleShape(rule=r.text, source=r.source) for r in effective.policy.rules],
        warnings=list(effective.warnings),
    )


def show_decision(asked: Asked, decision: Decision, standing: Standing) -> EgressDecisionShape:
    rules = standing.effective.policy.rules
    source = next((rule.source for rule in rules if rule.text == decision.by), None)
    return EgressDecisionShape(
        allowed=decision.allowed,
        asked=_is_asked(asked, decision, standing),
        host=asked.name or asked.address,
        port=asked.port,
        rule=decision.by or None,
        source=source,
    )


def _is_asked(asked: Asked, decision: Decision, standing: Standing) -> bool:
    asks = standing.effective.policy.on_block is OnBlock.ASK
    return asks and decision.rule is None and may_be_asked_for(asked.name, asked.address)
