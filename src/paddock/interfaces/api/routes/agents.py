"""`/v1/agents`: who does the work of tasks, and what each needs before it can."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from paddock.domain.agent import WorkMode
from paddock.domain.message import Mode
from paddock.interfaces.api import streams
from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.errors import request_id
from paddock.interfaces.api.paging import ByName
from paddock.interfaces.api.schemas.common import ListOf, Shape, page_of
from paddock.interfaces.api.streams import Format
from paddock.services.agents import Had, Seen

router = APIRouter(prefix="/v1/agents", tags=["agents"])
_STEPS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "messages `progress`, `installed` and `error`",
        "content": {"text/event-stream": {}, "application/x-ndjson": {}},
    }
}


class CredentialShape(Shape):
    """A credential that an agent could use; one of them is enough."""

    name: str = Field(description="of the secret", examples=["ANTHROPIC_API_KEY"])
    state: Had = Field(description="`set` is not enough for a key: it has to be bound to its route")
    route: str = Field(description="the model API that it is the key of", examples=["anthropic"])
    path: str = Field(description="for a file that a log-in made: where it goes in the home")


class AgentShape(Shape):
    """An agent, as your team finds it."""

    name: str = Field(examples=["claude_code"])
    title: str
    version: str = Field(description="the one that is used; empty where the sandbox brings it")
    package: str = Field(description="the npm package that it comes from")
    installed: bool = Field(description="on the server's host; otherwise the first task does that")
    ready: bool
    lacks: list[str] = Field(description="why a task cannot use it now, and what to do")
    credentials: list[CredentialShape]
    modes: list[Mode] = Field(description="how a message can reach it while it works")
    keeps_to: list[WorkMode] = Field(description="modes of work that it keeps to by itself")
    resumes: bool = Field(description="a later run can go on with the session of an earlier one")
    tools: bool = Field(description="it can be given MCP servers")
    reports_usage: bool
    default_model: str


@router.get("")
async def list_agents(given: Given, who: Who, page: ByName) -> ListOf[AgentShape]:
    """All that there are, by name, with what your team lacks for each."""
    found = await given.agents.list(who)
    return page_of(found, page, _show, lambda seen: seen.traits.name)


@router.get("/{agent}")
async def get(given: Given, who: Who, *, agent: str) -> AgentShape:
    """One agent."""
    return _show(await given.agents.get(who, agent))


@router.post("/{agent}/install", response_class=StreamingResponse, responses=_STEPS)
async def install(
    request: Request,
    given: Given,
    who: Who,
    *,
    agent: str,
    form: Annotated[Format, Query(alias="format")] = Format.SSE,
) -> StreamingResponse:
    """Install it for all sandboxes of the server's host, and follow how it goes. One that is there
    is tried, and installed anew if it does not answer. It goes on when the connection ends; who
    asks again follows the same. For the team that runs the installation."""
    steps = await given.agents.install(who, agent)
    body = streams.progress(steps, form, ("installed", {"agent": agent}))
    staying = given.access.stays.stay(who)
    return streams.response(body, form, request_id=request_id(request), staying=staying)


def _show(seen: Seen) -> AgentShape:
    traits = seen.traits
    return AgentShape.model_construct(
        name=traits.name,
        title=traits.title,
        version=traits.package.version if traits.package else "",
        package=traits.package.name if traits.package else "",
        installed=seen.installed,
        ready=seen.ready,
        lacks=list(seen.lacks),
        credentials=[
            CredentialShape.model_construct(
                name=each.name, state=each.had, route=each.route, path=each.path
            )
            for each in seen.credentials
        ],
        modes=sorted(traits.modes),
        keeps_to=sorted(traits.keeps_to),
        resumes=traits.resumes,
        tools=traits.tools,
        reports_usage=traits.reports_usage,
        default_model=traits.default_model,
    )
