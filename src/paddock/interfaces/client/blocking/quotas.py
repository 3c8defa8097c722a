"""Quotas of teams: how much one may have, and how much of it is used.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Mapping, Sequence

from paddock.interfaces.client.limits import QuotaInfo
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.quotas import AsyncQuotas
from paddock.interfaces.client.server import Server


class Quotas:
    """Quotas of your team. Operators can see and set those of every team."""

    _inner: AsyncQuotas

    def __init__(self, inner: AsyncQuotas) -> None:
        self._inner = inner

    @classmethod
    def list(cls, team: str = "", *, server: Server | None = None) -> Sequence[QuotaInfo]:
        """List the limits of a team; by default, of your own."""
        return portal().run(AsyncQuotas.list(team, server=server))

    @classmethod
    def set(
        cls, team: str, limits: Mapping[str, float | str | None], *, server: Server | None = None
    ) -> Sequence[QuotaInfo]:
        """Set limits: a number, `"unlimited"`, or None to use the installation's settings."""
        return portal().run(AsyncQuotas.set(team, limits, server=server))
