"""`/v1/volumes`: directories that sandboxes share, and that outlive them."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from paddock.domain.volume import DEFAULT_MIB, LEAST_MIB, VolumeRecord, VolumeState
from paddock.interfaces.api.context import Given, Key, Who
from paddock.interfaces.api.paging import VolumePage
from paddock.interfaces.api.schemas.common import ListOf, Shape, Text, at, paged
from paddock.services.volumes import VolumeWish

router = APIRouter(prefix="/v1/volumes", tags=["volumes"])


class CreateVolume(Shape):
    """What a new volume shall be."""

    name: Annotated[
        Text, Field(min_length=1, max_length=63, examples=["datasets"], description="of its own")
    ]
    size_mib: Annotated[
        int | None,
        Field(
            ge=LEAST_MIB,
            le=1 << 30,
            description=f"the most that it holds; {DEFAULT_MIB} unless said, where the provider "
            "can keep it to that",
        ),
    ] = None
    provider: Annotated[Text, Field(max_length=64)] = ""


class VolumeShape(Shape):
    """A volume."""

    id: str
    name: str
    provider: str
    state: VolumeState
    size_mib: int | None = Field(description="the most that it holds; null: nothing keeps it to it")
    created_at: datetime


class VolumeDetail(VolumeShape):
    """A volume, what is in it and who has it."""

    used_bytes: int
    mounted_by: list[str] = Field(description="the names of sandboxes, also of those that sleep")


@router.post("", status_code=201)
async def create(given: Given, who: Who, key: Key, *, wanted: CreateVolume) -> VolumeShape:
    """Make an empty one. A sandbox mounts it with `volumes` when it is made."""
    wish = VolumeWish(wanted.name, wanted.size_mib, wanted.provider)
    return _show(await given.volumes.create(who, wish, key))


@router.get("")
async def list_volumes(given: Given, who: Who, page: VolumePage) -> ListOf[VolumeShape]:
    """The team's, newest first."""
    found = await given.volumes.list(who, page)
    return paged(found, page.limit - 1, _show, lambda volume: volume.id)


@router.get("/{volume}")
async def get(given: Given, who: Who, volume: str) -> VolumeDetail:
    """One of them, by name or id."""
    found = await given.volumes.get(who, volume)
    files = await given.volumes.open(found)
    return VolumeDetail(
        **dict(_show(found)),
        used_bytes=await files.used_bytes(),
        mounted_by=list(await given.volumes.users(who, found)),
    )


@router.delete("/{volume}", status_code=204)
async def delete(
    given: Given,
    who: Who,
    volume: str,
    *,
    force: Annotated[
        bool,
        Query(description="also while sandboxes mount it: they go on with an empty directory"),
    ] = False,
) -> Response:
    """Let it go, with everything in it."""
    await given.volumes.delete(who, volume, force=force)
    return Response(status_code=204)


def _show(volume: VolumeRecord) -> VolumeShape:
    return VolumeShape(
        id=volume.id,
        name=volume.name,
        provider=volume.provider,
        state=volume.state,
        size_mib=volume.size_mib,
        created_at=at(volume.created_at),
    )
