"""`/volumes`, and `/volumecontent`: the files of one, opened by a token of its own."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from paddock.domain.errors import NotFound, Unauthenticated
from paddock.domain.team import Principal, Scope
from paddock.domain.volume import VolumeRecord, VolumeState
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.schemas.common import Text
from paddock.interfaces.e2b.bodies import Body
from paddock.interfaces.e2b.context import Key
from paddock.interfaces.e2b.views import moment
from paddock.ports.store import Page
from paddock.ports.volumes import Attributes, VolumeEntry, VolumeFiles
from paddock.services.volumes import VolumeWish

router = APIRouter()
_PURPOSE = "volume"
_PAGE = 500
_Path = Annotated[str, Query(max_length=4096)]
_Id = Annotated[int | None, Query(ge=0)]
_Mode = Annotated[int | None, Query(ge=0, le=0o7777)]


class NewVolume(Body):
    """`POST /volumes`."""

    name: Annotated[Text, Field(max_length=200)]


class Metadata(Body):
    """`PATCH /volumecontent/{volume}/path`."""

    uid: Annotated[int | None, Field(ge=0)] = None
    gid: Annotated[int | None, Field(ge=0)] = None
    mode: Annotated[int | None, Field(ge=0, le=0o7777)] = None


@router.post("/volumes")
async def create(given: Given, who: Who, key: Key, *, asked: NewVolume) -> Response:
    made = await given.volumes.create(who, VolumeWish(asked.name), key)
    return _told(given, who, made, 201)


@router.get("/volumes")
async def list_volumes(given: Given, who: Who) -> Response:
    found: list[VolumeRecord] = []
    while page := await given.volumes.list(who, Page(_PAGE, found[-1].id if found else "")):
        found += page
    ready = [each for each in found if each.state is VolumeState.READY]
    return JSONResponse([{"volumeID": each.id, "name": each.name} for each in ready])


@router.get("/volumes/{volume}")
async def get(given: Given, who: Who, volume: str) -> Response:
    """With what opens its files, so that it takes who may write them."""
    who.require(Scope.SANDBOXES_WRITE)
    return _told(given, who, await given.volumes.get(who, volume), 200)


@router.delete("/volumes/{volume}")
async def destroy(given: Given, who: Who, volume: str) -> Response:
    await given.volumes.delete(who, volume)
    return Response(status_code=204)


async def files(
    given: Given,
    volume: str,
    authorization: Annotated[str, Header()] = "",
) -> VolumeFiles:
    """Those that the token opens; one that opens nothing is not told whether there is a volume."""
    token = authorization.partition(" ")[2].strip()
    if not given.e2b.passages.tokens.holder(token, volume, _PURPOSE):
        raise Unauthenticated("the token does not open this volume")
    try:
        found = await given.volumes.find(volume)
        holders = given.e2b.passages.holders
        if await holders.find(token, volume, _PURPOSE, team_id=found.team_id) is None:
            raise Unauthenticated("who was given this token may not be here any more")
        return await given.volumes.open(found)
    except NotFound as error:
        raise Unauthenticated("the volume was destroyed") from error


Files = Annotated[VolumeFiles, Depends(files)]


async def attributes(uid: _Id = None, gid: _Id = None, mode: _Mode = None) -> Attributes:
    return Attributes(uid, gid, mode)


Wanted = Annotated[Attributes, Depends(attributes)]


@router.get("/volumecontent/{volume}/path")
async def stat(files: Files, path: _Path) -> Response:
    return JSONResponse(_entry(await files.stat(path)))


@router.patch("/volumecontent/{volume}/path")
async def change(files: Files, path: _Path, asked: Metadata) -> Response:
    wanted = Attributes(asked.uid, asked.gid, asked.mode)
    return JSONResponse(_entry(await files.change(path, wanted)))


@router.delete("/volumecontent/{volume}/path")
async def remove(files: Files, path: _Path) -> Response:
    await files.remove(path)
    return Response(status_code=204)


@router.get("/volumecontent/{volume}/dir")
async def list_dir(
    files: Files, path: _Path, depth: Annotated[int, Query(ge=1, le=64)] = 1
) -> Response:
    return JSONResponse([_entry(each) for each in await files.list(path, depth)])


@router.post("/volumecontent/{volume}/dir")
async def make_dir(files: Files, path: _Path, wanted: Wanted, *, force: bool = False) -> Response:
    return JSONResponse(_entry(await files.make_dir(path, wanted, parents=force)), 201)


@router.get("/volumecontent/{volume}/file")
async def read(files: Files, path: _Path) -> Response:
    length, content = await files.read(path)
    headers = {"content-length": str(length)}
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)


@router.put("/volumecontent/{volume}/file")
async def write(
    files: Files, path: _Path, wanted: Wanted, request: Request, *, force: bool = False
) -> Response:
    made = await files.write(path, request.stream(), wanted, force=force)
    return JSONResponse(_entry(made), 201)


def _told(given: Services, who: Principal, volume: VolumeRecord, status: int) -> Response:
    token = given.e2b.passages.tokens.of(volume.id, _PURPOSE, holder=who.means)
    return JSONResponse({"volumeID": volume.id, "name": volume.name, "token": token}, status)


def _entry(entry: VolumeEntry) -> dict[str, Any]:
    found = {
        "name": entry.name,
        "type": entry.kind.value,
        "path": entry.path,
        "size": entry.size,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "atime": moment(entry.accessed_at),
        "mtime": moment(entry.modified_at),
        "ctime": moment(entry.changed_at),
    }
    return {**found, "target": entry.target} if entry.target else found
