"""How much the gateway lets anyone have."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What keeps strangers from wearing the server out, and visitors from each other."""

    strangers: int = 128
    """Connections at a time whose owner is not known yet."""
    strangers_of_one: int = 64
    """The same from one address."""
    login_s: float = 30.0
    """Until then they have to say who they are."""
    tries: int = 6
    """Wrong tokens on one connection."""
    keys: int = 20
    """Unknown keys on one connection: an agent offers all that it has."""
    failures: int = 10
    """Wrong tokens from one address before it has to wait."""
    forget_failures_s: float = 60.0
    connections: int = 1000
    channels: int = 64
    """Of one connection: shells, commands, transfers, forwarded ports."""
    look_every_s: float = 2.0
    """How soon a visitor whose access was revoked is sent away."""
    keepalive_s: float = 30.0
    keepalives: int = 3
    """Unanswered ones until a visitor counts as gone."""
    closing_s: float = 4.0
    """How long the gateway takes leave."""
