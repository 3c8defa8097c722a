"""Quotas of teams: how much one may have, and how much of it is used.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Mapping, Sequence

from paddock.interfaces.client.limits import QuotaInfo
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.quotas import AsyncQuotas
from paddock.interfaces.client.server import Server


class Quotas:
    """Those of your team; operators see and set those of every team."""

    _inner: AsyncQuotas

    def __init__(self, inner: AsyncQuotas) -> None:
        self._inner = inner

    @classmethod
    def list(cls, team: str = "", *, server: Server | None = None) -> Sequence[QuotaInfo]:
        """Of your own team unless one is named."""
        return portal().run(AsyncQuotas.list(team, server=server))

    @classmethod
    def set(
        cls, team: str, limits: Mapping[str, float | str | None], *, server: Server | None = None
    ) -> Sequence[QuotaInfo]:
        """A number, `"unlimited"`, or None for what the installation's settings say."""
        return portal().run(AsyncQuotas.set(team, limits, server=server))
