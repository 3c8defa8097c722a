"""`/v1/templates`: what sandboxes start from, where the provider keeps it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from paddock.domain.ignoring import MOST_RULES
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.errors import request_id
from paddock.interfaces.api.paging import ByName
from paddock.interfaces.api.schemas.common import Env, ListOf, Shape, Text, page_of
from paddock.interfaces.api.streams import Format
from paddock.services.templates import Listed

router = APIRouter(prefix="/v1/templates", tags=["templates"])
ProviderName = Annotated[str, Query(max_length=64, description="the default one unless said")]
_STEPS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "messages `progress`, `built` and `error`",
        "content": {"text/event-stream": {}, "application/x-ndjson": {}},
    }
}


Rules = Annotated[
    list[Text],
    Field(
        max_length=MOST_RULES,
        description="paths from the root of the sandbox that snapshots leave out; `*` and `?` may "
        "stand in the last part only",
        examples=[["/home/user/.cache", "/var/cache/apt/archives/*"]],
    ),
]


class SourceShape(Shape):
    """The root file system before the set-up commands ran."""

    kind: SourceKind
    reference: Annotated[Text, Field(min_length=1, max_length=4096, examples=["debian:13"])]
    packages: Annotated[list[Text], Field(max_length=1000)] = Field(default_factory=list)


class TemplateShape(Shape):
    """A named recipe."""

    name: Annotated[str, Field(min_length=1, max_length=63, examples=["tools"])]
    source: SourceShape
    setup: Annotated[
        list[Text], Field(max_length=1000, description="shell commands, as root, in order")
    ] = Field(default_factory=list)
    env: Env = Field(default_factory=dict)
    user: Annotated[Text, Field(max_length=64)] = "user"
    workdir: Annotated[Text, Field(max_length=4096)] = ""
    hardened: bool = False
    runtime: Literal["", "crun", "runc", "runsc"] = ""
    snapshot_ignore: Rules = Field(default_factory=list)

    def read(self) -> Template:
        source = self.source
        return Template(
            name=self.name,
            source=TemplateSource(source.kind, source.reference, tuple(source.packages)),
            setup=tuple(self.setup),
            env=tuple(self.env.items()),
            user=self.user,
            workdir=self.workdir,
            hardened=self.hardened,
            runtime=self.runtime,
            snapshot_ignore=tuple(self.snapshot_ignore),
        )


class TemplateChange(Shape):
    """What can be changed of a template without building it anew."""

    snapshot_ignore: Rules


class KeptTemplate(TemplateShape):
    """A recipe that is kept."""

    digest: str = Field(description="of all that decides what is on the disk")
    built: bool = Field(description="the template is built")
    owner: Literal["installation", "team"] = Field(
        description="`team` for a template that your team built with E2B's SDK"
    )
    tags: list[str] = Field(description="tags of a team's template; `name:tag` selects a build")


class RemovedBuild(Shape):
    """A build that is gone."""

    digest: str
    freed_bytes: int = Field(description="the room it had taken")


@router.get("")
async def list_templates(
    given: Given, who: Who, page: ByName, *, provider: ProviderName = ""
) -> ListOf[KeptTemplate]:
    """The provider's templates and those that your team has built from code, by name."""
    found = await given.templates.list(who, provider)
    return page_of(found, page, _listed, lambda each: each.template.name)


@router.get("/{template}")
async def get(
    given: Given, who: Who, *, template: str, provider: ProviderName = ""
) -> KeptTemplate:
    """One template."""
    return _listed(await given.templates.get(who, provider, template))


@router.post("", status_code=201)
async def add(
    given: Given, who: Who, *, wanted: TemplateShape, provider: ProviderName = ""
) -> KeptTemplate:
    """Add a template, or replace the one of that name. It is built on first use, or by `/build`.
    For the team that runs the installation."""
    added = await given.templates.add(who, provider, wanted.read())
    return _listed(await given.templates.described(provider, added.name))


@router.patch("/{template}")
async def change(
    given: Given, who: Who, *, template: str, wanted: TemplateChange, provider: ProviderName = ""
) -> KeptTemplate:
    """Change what snapshots of its sandboxes leave out from now on. Nothing is built anew, and
    snapshots that are there stay as they are. For the team that runs the installation."""
    await given.templates.set_ignore(who, provider, template, wanted.snapshot_ignore)
    return _listed(await given.templates.described(provider, template))


@router.delete("/{template}", status_code=204)
async def remove(given: Given, who: Who, *, template: str, provider: ProviderName = "") -> Response:
    """Remove a template with its build, or a build by its digest. 409 while a sandbox or a snapshot
    was made of it. A built-in template only loses its build. A team's template is removed with all
    its builds."""
    await given.templates.remove(who, provider, template)
    return Response(status_code=204)


@router.post("/prune")
async def prune(
    given: Given, who: Who, *, provider: ProviderName = "", everything: bool = False
) -> ListOf[RemovedBuild]:
    """Remove the builds that no sandbox, snapshot or template needs; with `everything`, also those
    of templates, which are built again on their next use."""
    removed = await given.templates.prune(who, provider, everything=everything)
    items = [RemovedBuild(digest=each.digest, freed_bytes=each.freed_bytes) for each in removed]
    return ListOf[RemovedBuild](items=items, next_cursor=None)


@router.post("/{template}/build", response_class=StreamingResponse, responses=_STEPS)
async def build(
    request: Request,
    given: Given,
    who: Who,
    *,
    template: str,
    provider: ProviderName = "",
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
) -> StreamingResponse:
    """Build it now instead of on first use, and follow how it goes. It goes on when the connection
    ends; who asks again follows the same build."""
    steps = await given.templates.build(who, provider, template)
    body = streams.progress(steps, form, ("built", {"template": template}))
    staying = given.access.stays.stay(who)
    return streams.response(body, form, request_id=request_id(request), staying=staying)


def _listed(listed: Listed) -> KeptTemplate:
    template = listed.template
    source = template.source
    return KeptTemplate.model_construct(
        name=template.name,
        source=SourceShape.model_construct(
            kind=source.kind, reference=source.reference, packages=list(source.packages)
        ),
        setup=list(template.setup),
        env=dict(template.env),
        user=template.user,
        workdir=template.workdir,
        hardened=template.hardened,
        runtime=template.runtime,
        snapshot_ignore=list(template.snapshot_ignore),
        digest=template.digest(),
        built=listed.is_built,
        owner="team" if listed.tags else "installation",
        tags=list(listed.tags),
    )
