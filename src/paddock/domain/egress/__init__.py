"""What a sandbox may reach: rules, and the pure functions that decide by them."""

from paddock.domain.egress.policy import (
    CLOSED,
    OPEN,
    EgressPolicy,
    EgressWish,
    NetworkMode,
    OnBlock,
    SourcedRule,
)

__all__ = ["CLOSED", "OPEN", "EgressPolicy", "EgressWish", "NetworkMode", "OnBlock", "SourcedRule"]
