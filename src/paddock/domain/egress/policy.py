"""What a sandbox may reach, as it is asked for and as it is in force."""

from dataclasses import dataclass
from enum import StrEnum

from paddock.domain.errors import InvalidRequest

MOST_RULES = 500
WHOLE_WORLD = ("*:*", "0.0.0.0/0:*")
"""What an open network has through the gateway: every name, and every address of the world."""


class NetworkMode(StrEnum):
    """How much network there is at all, before any rule is looked at."""

    NONE = "none"
    """Loopback only. Nothing outside the sandbox can be reached."""
    ALLOWLIST = "allowlist"
    """What a rule allows, through a gateway outside the sandbox; everything else is refused."""
    OPEN = "open"
    """Everything the host can route to, except the host itself and link-local addresses."""


class OnBlock(StrEnum):
    """What becomes of a connection that no rule is about."""

    DENY = "deny"
    ASK = "ask"
    """It is held while somebody is asked."""


@dataclass(frozen=True, slots=True)
class SourcedRule:
    """A rule in its written form, and whose it is."""

    text: str
    source: str = "sandbox"
    """`preset development`, `template base`, `app shop`, `sandbox`."""
    by_operator: bool = False
    """Whether it belongs to a preset or a template, which only operators can change."""


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The policy in force for one sandbox. Closed unless said otherwise."""

    mode: NetworkMode = NetworkMode.NONE
    rules: tuple[SourcedRule, ...] = ()
    """In their order: the first that fits decides. Meant for `allowlist` alone."""
    on_block: OnBlock = OnBlock.DENY

    def __post_init__(self) -> None:
        if len(self.rules) > MOST_RULES:
            raise InvalidRequest(
                f"a policy has {len(self.rules)} rules; {MOST_RULES} is the most",
                remediation="allow a whole domain with `*.example.org` instead of its hosts",
            )


@dataclass(frozen=True, slots=True)
class EgressWish:
    """What one of those who have a say wants. What is None is left to the others."""

    mode: NetworkMode | None = None
    preset: str | None = None
    """The rules to begin with; empty begins with none."""
    rules: tuple[str, ...] = ()
    on_block: OnBlock | None = None


CLOSED = EgressPolicy()
OPEN = EgressPolicy(NetworkMode.OPEN)


def wish_of(kept: object) -> EgressWish:
    """A wish as it was stored: its fields, by name."""
    try:
        fields = dict(kept)  # type: ignore[call-overload]
        mode, preset = fields["mode"], fields["preset"]
        rules = tuple(str(rule) for rule in fields["rules"])
        asked = fields.get("on_block")  # not in those of before there were approvals
        on_block = OnBlock(asked) if asked else None
        return EgressWish(NetworkMode(mode) if mode else None, preset, rules, on_block)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"these are no egress rules: {error}") from error
