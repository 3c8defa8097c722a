"""Quotas of teams: how much one may have, and how much of it is used."""

from collections.abc import Mapping, Sequence

from paddock.interfaces.client.limits import QuotaInfo
from paddock.interfaces.client.results import read
from paddock.interfaces.client.server import Server, segment


class AsyncQuotas:
    """Quotas of your team. Operators can see and set those of every team."""

    @classmethod
    async def list(cls, team: str = "", *, server: Server | None = None) -> Sequence[QuotaInfo]:
        """List the limits of a team; by default, of your own."""
        place = server or Server()
        if not team:
            me = await place.call("GET", "/v1/me")
            team = me["team"]["id"]
        return _limits(await place.call("GET", _path(team)))

    @classmethod
    async def set(
        cls, team: str, limits: Mapping[str, float | str | None], *, server: Server | None = None
    ) -> Sequence[QuotaInfo]:
        """Set limits: a number, `"unlimited"`, or None to use the installation's settings."""
        place = server or Server()
        return _limits(await place.call("PATCH", _path(team), json=dict(limits), repeatable=True))


def _path(team: str) -> str:
    return f"/v1/teams/{segment(team)}/quota"


def _limits(answer: Mapping[str, Sequence[object]]) -> Sequence[QuotaInfo]:
    return [read(QuotaInfo, each) for each in answer["limits"]]
