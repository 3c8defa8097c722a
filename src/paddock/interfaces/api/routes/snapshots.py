"""`/v1/snapshots`: disks at one moment."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from paddock.domain.ignoring import MOST_SHOWN, Ignoring, Whole
from paddock.domain.keeping import Kind, Pruning
from paddock.domain.records import SnapshotRecord
from paddock.interfaces.api.context import Given, Key, Who
from paddock.interfaces.api.paging import SnapshotPage
from paddock.interfaces.api.schemas.common import ListOf, Name, Shape, at, moment, paged
from paddock.interfaces.api.schemas.sandboxes import SandboxShape, show
from paddock.services.taking import Capture

router = APIRouter(prefix="/v1", tags=["snapshots"])


class TakeSnapshot(Shape):
    """How a snapshot shall be taken."""

    name: Name | Literal[""] = ""
    memory: Annotated[bool, Field(description="running programs too, where the provider can")] = (
        False
    )
    keep_s: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="until it may go; null: kept")
    ] = None

    everything: Annotated[
        bool, Field(description="also what the template's `snapshot_ignore` leaves out")
    ] = False
    replace: Annotated[
        bool,
        Field(description="let the same sandbox's of that name go, once the new one is there"),
    ] = False


class Restore(Shape):
    """Which snapshot, by id or name."""

    snapshot: Annotated[str, Field(min_length=1, max_length=128)]


class Prune(Shape):
    """Which snapshots shall go."""

    older_than_s: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    keep_last: Annotated[
        int | None, Field(ge=0, le=1_000_000, description="the newest of each sandbox stay")
    ] = None
    kind: Kind = Kind.AUTOMATIC
    sandbox: Annotated[str, Field(max_length=64, description="of this one; of all unless said")] = (
        ""
    )


class Ignored(Shape):
    """The rules of the template when it was taken, and what they have left out."""

    rules: list[str]
    applied: bool = Field(description="whether there were rules and they were gone by")
    whole_because: Whole | None = Field(
        description="why everything is in it although there were rules: asked for, automatic, with "
        "memory, the provider cannot leave anything out, or nothing of the work would have remained"
    )
    left_out: list[str] = Field(
        description=f"the first {MOST_SHOWN} paths that were left out, each with all below it"
    )
    left_out_count: int = Field(description="how many there were")
    left_out_bytes: int = Field(description="the room that their files had taken")


class SnapshotShape(Shape):
    """A snapshot."""

    id: str
    name: str
    state: Literal["taking", "ready"]
    provider: str
    sandbox_id: str
    template: str
    labels: dict[str, str]
    env_names: list[str]
    size_bytes: int | None
    automatic: bool
    created_at: datetime
    expires_at: datetime | None
    ignore: Ignored


class Pruned(Shape):
    """What is gone."""

    items: list[SnapshotShape]


@router.post("/sandboxes/{sandbox}/snapshots", status_code=201)
async def take(
    given: Given, who: Who, *, key: Key, sandbox: str, wish: TakeSnapshot
) -> SnapshotShape:
    """Keep its disk as it is now, also while it runs: but for what the template's
    `snapshot_ignore` names, unless `everything` is said. The sandbox itself keeps all."""
    capture = Capture(
        wish.name,
        wish.memory,
        keep_s=wish.keep_s,
        key=key,
        everything=wish.everything,
        replace=wish.replace,
    )
    return _show(await given.snapshots.take(who, sandbox, capture))


@router.post("/sandboxes/{sandbox}/restore")
async def restore(given: Given, who: Who, *, sandbox: str, wanted: Restore) -> SandboxShape:
    """Give the sandbox the disk of a snapshot. What it has now is kept as an automatic one."""
    return show(await given.snapshots.restore(who, sandbox, wanted.snapshot))


@router.get("/snapshots")
async def list_snapshots(
    given: Given,
    who: Who,
    page: SnapshotPage,
    *,
    sandbox: Annotated[str, Query(max_length=64)] = "",
) -> ListOf[SnapshotShape]:
    """The team's snapshots, newest first."""
    found = await given.snapshots.list(who, sandbox, page)
    return paged(found, page.limit - 1, _show, lambda snapshot: snapshot.id)


@router.post("/snapshots/prune")
async def prune(given: Given, who: Who, wanted: Prune) -> Pruned:
    """Let go of those that are older, or beyond the newest so many of each sandbox; where both are
    said, both have to hold. Automatic ones only, unless `kind` says otherwise."""
    pruning = Pruning(wanted.older_than_s, wanted.keep_last, wanted.kind)
    gone = await given.automatic.prune(who, pruning, wanted.sandbox)
    return Pruned(items=[_show(each) for each in gone])


@router.get("/snapshots/{snapshot}")
async def get(given: Given, who: Who, snapshot: str) -> SnapshotShape:
    """One snapshot, by id or name."""
    return _show(await given.snapshots.get(who, snapshot))


@router.delete("/snapshots/{snapshot}", status_code=204)
async def delete(given: Given, who: Who, snapshot: str) -> Response:
    """Let it go; sandboxes made of it stay."""
    await given.snapshots.delete(who, snapshot)
    return Response(status_code=204)


def _show(snapshot: SnapshotRecord) -> SnapshotShape:
    return SnapshotShape(
        id=snapshot.id,
        name=snapshot.name,
        state="ready" if snapshot.ref else "taking",
        provider=snapshot.provider,
        sandbox_id=snapshot.sandbox_id,
        template=snapshot.template,
        labels=dict(snapshot.labels),
        env_names=sorted(snapshot.env),
        size_bytes=snapshot.size_bytes,
        automatic=snapshot.automatic,
        created_at=at(snapshot.created_at),
        expires_at=moment(snapshot.expires_at),
        ignore=_ignored(snapshot.ignoring),
    )


def _ignored(ignoring: Ignoring) -> Ignored:
    left_out = ignoring.left_out
    return Ignored(
        rules=list(ignoring.rules),
        applied=bool(ignoring.applied),
        whole_because=ignoring.whole,
        left_out=list(left_out.paths),
        left_out_count=left_out.count,
        left_out_bytes=left_out.size_bytes,
    )
