"""`/v1/purge`: all that belongs to an owner or an app, removed and forgotten."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from paddock.domain.purge import Purge, PurgeState, Whose
from paddock.interfaces.api.context import Given, Key, Who
from paddock.interfaces.api.paging import PurgePage
from paddock.interfaces.api.schemas.common import ListOf, Shape, Text, at, moment, page_of

router = APIRouter(prefix="/v1", tags=["owners"])


class PurgeWish(Shape):
    """Whom to forget: an owner or an app."""

    owner: Annotated[Text, Field(max_length=200, examples=["user-17"])] = ""
    app: Annotated[Text, Field(max_length=63, description="instead of an owner")] = ""
    dry_run: bool = Field(False, description="only say what would go")
    force: bool = Field(False, description="also work that is nowhere else")


class PurgeShape(Shape):
    """How far a purge has come."""

    id: str | None
    state: PurgeState
    owner: str | None = Field(description="null when it is over: the name is forgotten, too")
    app: str | None = Field(description="likewise")
    digest: str = Field(description="of the name, with a key of this installation")
    actor: str
    forced: bool
    removed: dict[str, int]
    kept: list[str] = Field(description="what is left, and why")
    created_at: datetime
    ended_at: datetime | None


@router.post("/purge", responses={202: {"model": PurgeShape}})
async def purge(
    given: Given, who: Who, *, key: Key, response: Response, wanted: PurgeWish
) -> PurgeShape:
    """Remove an owner's or an app's sandboxes and snapshots with the tasks of these, an app's
    secrets and configuration, and what the logs say of them: 202, and it goes on by itself. 409,
    and nothing is removed, while work that is nowhere else would be lost."""
    whose = Whose(wanted.owner, wanted.app)
    if wanted.dry_run:
        return _show(await given.purges.plan(who, whose))
    begun = await given.purges.begin(who, whose, force=wanted.force, key=key)
    response.status_code = 202
    return _show(begun)


@router.get("/purges")
async def list_purges(given: Given, who: Who, page: PurgePage) -> ListOf[PurgeShape]:
    """Those that run and those that are over, newest first."""
    found = await given.purges.list(who)
    return page_of(found, page, _show, lambda purge: purge.id, last_first=True)


@router.get("/purges/{purge}")
async def get(given: Given, who: Who, purge: str) -> PurgeShape:
    """One of them."""
    return _show(await given.purges.get(who, purge))


def _show(purge: Purge) -> PurgeShape:
    return PurgeShape(
        id=purge.id or None,
        state=purge.state,
        owner=purge.owner or None,
        app=purge.app or None,
        digest=purge.digest,
        actor=purge.actor,
        forced=purge.force,
        removed=dict(purge.removed),
        kept=list(purge.kept),
        created_at=at(purge.created_at),
        ended_at=moment(purge.ended_at),
    )
