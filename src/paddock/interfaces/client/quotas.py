"""Quotas of teams: how much one may have, and how much of it is used."""

from collections.abc import Mapping, Sequence

from paddock.interfaces.client.limits import QuotaInfo
from paddock.interfaces.client.results import read
from paddock.interfaces.client.server import Server, segment


class AsyncQuotas:
    """Those of your team; operators see and set those of every team."""

    @classmethod
    async def list(cls, team: str = "", *, server: Server | None = None) -> Sequence[QuotaInfo]:
        """Of your own team unless one is named."""
        place = server or Server()
        if not team:
            me = await place.call("GET", "/v1/me")
            team = me["team"]["id"]
        return _limits(await place.call("GET", _path(team)))

    @classmethod
    async def set(
        cls, team: str, limits: Mapping[str, float | str | None], *, server: Server | None = None
    ) -> Sequence[QuotaInfo]:
        """A number, `"unlimited"`, or None for what the installation's settings say."""
        place = server or Server()
        return _limits(await place.call("PATCH", _path(team), json=dict(limits), repeatable=True))


def _path(team: str) -> str:
    return f"/v1/teams/{segment(team)}/quota"


def _limits(answer: Mapping[str, Sequence[object]]) -> Sequence[QuotaInfo]:
    return [read(QuotaInfo, each) for each in answer["limits"]]
