"""`/templates`: what sandboxes are made of, by name and tag, and how it is built from code."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from paddock.domain.build import AT_END, Build, BuildState, Family, Line, Step, StepKind
from paddock.domain.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    PaddockError,
    Unauthenticated,
    Unsupported,
)
from paddock.domain.sandbox import Limits
from paddock.domain.team import Principal
from paddock.domain.template import Template
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.schemas.common import Text
from paddock.interfaces.e2b import views
from paddock.interfaces.e2b.bodies import Body
from paddock.interfaces.e2b.network import unsaid
from paddock.interfaces.e2b.sources import find_source, ours, split
from paddock.services.build_files import BuildFile
from paddock.services.build_records import DEFAULT_TAG
from paddock.services.builds import Plan, is_build

router = APIRouter()
_LINES = 100
_STATES = {
    BuildState.WAITING: "waiting",
    BuildState.BUILDING: "building",
    BuildState.READY: "ready",
    BuildState.FAILED: "error",
}
_THEIR_BASE = "e2bdev/base"
_UPLOAD = "upload"
_STEPS = {"": "base", AT_END: "finalize"}
"""What comes before the first step and after the last, in E2B's words."""


class BeginBuild(Body):
    """`POST /v3/templates`."""

    name: Annotated[Text, Field(min_length=1, max_length=200)]
    tags: list[Text] = Field(default_factory=list, max_length=20)
    cpu_count: Annotated[float, Field(gt=0)] | None = None
    memory_mb: Annotated[int | None, Field(alias="memoryMB", gt=0)] = None


class StepBody(Body):
    """One step."""

    type: StepKind
    args: list[Text] = Field(default_factory=list)
    files_hash: str = ""


class StartBuild(Body):
    """How it is built."""

    from_image: Text = ""
    from_template: Text = ""
    from_image_registry: dict[str, object] | None = None
    steps: list[StepBody] = Field(default_factory=list, max_length=1000)
    start_cmd: Text = ""
    ready_cmd: Text = ""


class AssignTags(Body):
    """More tags for what one means."""

    target: Text
    tags: Annotated[list[Text], Field(min_length=1, max_length=20)]


class RemoveTags(Body):
    """Tags that mean nothing any more."""

    name: Text
    tags: Annotated[list[Text], Field(min_length=1, max_length=100)]


@router.post("/v3/templates")
async def begin(given: Given, who: Who, asked: BeginBuild) -> Response:
    name, tag = split(asked.name)
    tags = [tag, *asked.tags] if ":" in asked.name else asked.tags
    limits = Limits()
    if asked.cpu_count is not None:
        limits["cpus"] = asked.cpu_count
    if asked.memory_mb is not None:
        limits["memory_mib"] = asked.memory_mb
    build = await given.e2b.builds.begin(who, name, tags, limits)
    return JSONResponse(
        {
            "templateID": build.name,
            "buildID": build.id,
            "public": False,
            "names": [build.name],
            "aliases": [build.name],
            "tags": list(build.tags),
        },
        202,
    )


@router.get("/templates/{template}/files/{digest}")
async def ask_for_files(
    request: Request, given: Given, who: Who, template: str, *, digest: str
) -> Response:
    """Where a step's files are to be put, unless they are there from an earlier build."""
    await given.e2b.builds.family(who, template)
    if given.e2b.builds.files.has(BuildFile(who.team_id, who.holder, digest)):
        return JSONResponse({"present": True}, 201)
    word = given.e2b.passages.tokens.of(f"{who.team_id} {who.holder} {digest}", _UPLOAD)
    query = urlencode({"team": who.team_id, "by": who.holder, "word": word})
    url = request.url.replace(path=f"{request.url.path}/content", query=query)
    return JSONResponse({"present": False, "url": str(url)}, 201)


@router.put("/templates/{template}/files/{digest}/content")
async def put_files(
    request: Request, given: Given, digest: str, *, team: str = "", by: str = "", word: str = ""
) -> Response:
    """By the address that was given: it is for these files of this team and holder only."""
    if not given.e2b.passages.tokens.opens(word, f"{team} {by} {digest}", _UPLOAD):
        raise Unauthenticated("this address is not one that was given", remediation="ask for one")
    length = request.headers.get("content-length", "")
    announced = int(length) if length.isascii() and length.isdigit() else None
    file = BuildFile(team, by, digest)
    await given.e2b.builds.files.keep(file, request.stream(), announced)
    return Response(status_code=200)


@router.post("/v2/templates/{template}/builds/{build}")
async def start(
    given: Given, who: Who, template: str, build: str, *, asked: StartBuild
) -> Response:
    await given.e2b.builds.look(who, template, build)
    await given.e2b.builds.start(who, build, await _plan(given, who, asked))
    return JSONResponse({}, 202)


@router.get("/templates/{template}/builds/{build}/status")
async def status(
    given: Given,
    who: Who,
    template: str,
    build: str,
    *,
    offset: Annotated[int, Query(alias="logsOffset", ge=0)] = 0,
) -> Response:
    found, lines = await given.e2b.builds.look(who, template, build)
    shown = [_line(line) for line in lines[offset : offset + _LINES]]
    answer: dict[str, Any] = {
        "templateID": found.name,
        "buildID": found.id,
        "status": _STATES[found.state],
        "logs": [line["message"] for line in shown],
        "logEntries": shown,
    }
    if found.state is BuildState.FAILED:
        answer["reason"] = {
            "message": _why(found),
            "step": _STEPS.get(found.failed_step, found.failed_step),
            "logEntries": [],
        }
    return JSONResponse(answer)


@router.get("/templates/aliases/{alias:path}")
async def alias(given: Given, who: Who, alias: str) -> Response:
    name, _ = split(alias)
    if not await _is_known(given, who, name):
        raise NotFound(f"there is no template {name[:80]}")
    return JSONResponse({"templateID": name, "public": False})


@router.get("/templates")
@router.get("/v2/templates")
async def list_templates(given: Given, who: Who) -> Response:
    own = [_family(each) for each in await given.e2b.builds.families(who)]
    names = {each["templateID"] for each in own}
    ours = [_ours(each) for each in await _installed(given, who) if each.name not in names]
    return JSONResponse([*own, *ours])


@router.post("/templates/tags")
async def assign_tags(given: Given, who: Who, asked: AssignTags) -> Response:
    name, tag = split(asked.target)
    build = await given.e2b.builds.tag(who, name, tag, asked.tags)
    return JSONResponse({"tags": asked.tags, "buildID": build.id}, 201)


@router.delete("/templates/tags")
async def remove_tags(given: Given, who: Who, asked: RemoveTags) -> Response:
    await given.e2b.builds.untag(who, split(asked.name)[0], asked.tags)
    return Response(status_code=204)


@router.get("/templates/{name}/tags")
async def tags(given: Given, who: Who, name: str) -> Response:
    family = await given.e2b.builds.family(who, split(name)[0])
    return JSONResponse(
        [
            {
                "tag": tag,
                "buildID": build,
                "createdAt": views.moment(family.builds[build].created_at),
            }
            for tag, build in family.tags.items()
        ]
    )


@router.delete("/templates/{name:path}")
async def delete(given: Given, who: Who, name: str) -> Response:
    """A template with all its builds, one tag of it, or a snapshot: clients use the same route for
    all of them, and name a snapshot with a tag."""
    short, tag = split(name)
    if not await given.e2b.builds.is_taken(who, short):
        if tag != DEFAULT_TAG:
            raise NotFound(f"there is no snapshot {short[:80]} with a tag {tag[:80]}")
        found = await given.snapshots.get(who, short)
        if is_build(found):
            raise NotFound(f"there is no snapshot {short[:80]}")
        await given.snapshots.delete(who, found.id)
    elif ":" in name:
        await _check_clear(given, who, short)
        await given.e2b.builds.untag(who, short, [tag])
    else:
        await given.e2b.builds.delete(who, short)
    return Response(status_code=204)


async def _check_clear(given: Services, who: Principal, name: str) -> None:
    """Paddock's own API names snapshots without regard to templates."""
    try:
        snapshot = await given.snapshots.get(who, name)
    except NotFound:
        return
    raise Conflict(
        f"{name} is the name of a template and of a snapshot",
        remediation=f"delete the snapshot by its id: {snapshot.id}",
    )


async def _plan(given: Services, who: Principal, asked: StartBuild) -> Plan:
    if bool(asked.from_image) == bool(asked.from_template):
        raise InvalidRequest("a build begins with either an image or a template")
    if asked.from_image_registry:
        raise Unsupported(
            "images are not fetched with a password here",
            remediation="let the administrator make a template of the image",
        )
    name = asked.from_template or ("base" if asked.from_image == _THEIR_BASE else "")
    steps = tuple(Step(each.type, tuple(each.args), each.files_hash) for each in asked.steps)
    egress = unsaid(internet=given.e2b.config.internet)
    plan = Plan(
        asked.from_image, steps=steps, start=asked.start_cmd, ready=asked.ready_cmd, egress=egress
    )
    if not name:
        return plan
    source = await find_source(given, who, name)
    return Plan(
        source.template,
        source.snapshot,
        base=source.left,
        steps=steps,
        start=asked.start_cmd or source.left.start,
        ready=asked.ready_cmd or source.left.ready,
        egress=egress,
    )


async def _is_known(given: Services, who: Principal, name: str) -> bool:
    try:
        await given.e2b.builds.family(who, name)
    except NotFound:
        pass
    else:
        return True
    return any(each.name == ours(name) for each in await _installed(given, who))


async def _installed(given: Services, who: Principal) -> list[Template]:
    """The templates of the installation; none where the provider keeps none of its own."""
    try:
        found = await given.templates.list(who, "")
    except PaddockError:
        return []
    return [each.template for each in found if not each.tags]


def _why(build: Build) -> str:
    """In the words that E2B has for commands that fail."""
    attempt = build.attempt
    if attempt is None:
        return build.why
    how = f"exit status {attempt.exit_code}"
    if attempt.exit_code is None:
        how = f"command failed: unauthenticated: invalid username: '{attempt.user}'"
    return f"failed to run command '{attempt.command}': {how}"


def _line(line: Line) -> dict[str, Any]:
    return {"timestamp": views.moment(line.at), "message": line.text, "level": line.level}


def _ours(template: Template) -> dict[str, Any]:
    """Ready whether it is built or not: its first sandbox builds it."""
    return {
        "templateID": template.name,
        "buildID": template.digest(),
        "buildStatus": "ready",
        "public": True,
        "names": [template.name],
        "aliases": [template.name],
        "createdAt": views.moment(0.0),
    }


def _family(family: Family) -> dict[str, Any]:
    newest: Build = max(family.builds.values(), key=lambda build: build.created_at)
    return {
        "templateID": family.name,
        "buildID": family.tags.get(DEFAULT_TAG, newest.id),
        "buildStatus": _STATES[newest.state],
        "public": False,
        "names": [family.name],
        "aliases": [family.name],
        "createdAt": views.moment(newest.created_at),
    }
