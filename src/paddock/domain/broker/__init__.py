"""Credentials that are used on behalf of a sandbox without ever being in it."""

from paddock.domain.broker.binding import Binding, Way

__all__ = ["Binding", "Way"]
