"""`/v1/session` and `/v1/sessions`: who is signed in with a browser."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound
from paddock.domain.ids import is_id
from paddock.domain.session import SESSION_PREFIX, SESSION_S, Session, csrf_of, ends_at
from paddock.interfaces.api import browsers
from paddock.interfaces.api.context import Given, Services, Who
from paddock.interfaces.api.paging import SessionPage
from paddock.interfaces.api.schemas.common import ListOf, Shape, Text, at, moment, paged

router = APIRouter(prefix="/v1", tags=["people"])


class SessionShape(Shape):
    """A browser that somebody has signed in with."""

    id: str
    holder: str = Field(description="a person, or a token that is nobody's")
    token_id: str | None = Field(description="it was begun with this token, and ends with it")
    agent: str = Field(description="what the browser says it is")
    created_at: datetime
    used_at: datetime
    ends_at: datetime = Field(description="unless it is used again")
    ended_at: datetime | None


class OwnSession(SessionShape):
    """The session of the cookie that came with the request."""

    csrf: str = Field(description="goes with every write as the header X-Paddock-CSRF")


class SignIn(Shape):
    """One of the two."""

    link: Annotated[Text, Field(max_length=200, description="of `POST /v1/people/me/links`")] = ""
    token: Annotated[Text, Field(max_length=200)] = ""


@router.post("/session", status_code=201)
async def sign_in(request: Request, response: Response, given: Given, wanted: SignIn) -> OwnSession:
    """Exchange a sign-in link or a token for a session, which the cookie holds."""
    browsers.check_origin(request, given.public_url)
    _slow_down(request, given)
    if bool(wanted.link) == bool(wanted.token):
        raise InvalidRequest(
            "a session begins with a link or with a token", remediation="send one of the two"
        )
    agent = request.headers.get("user-agent", "")
    if wanted.link:
        session, cookie = await given.sessions.begin_with_link(wanted.link, agent)
    else:
        session, cookie = await given.sessions.begin_with_token(wanted.token, agent)
    browsers.set_cookie(response, request, given.public_url, value=cookie, lasts_s=SESSION_S)
    response.headers["cache-control"] = "no-store"
    return OwnSession(**dict(_show(session)), csrf=csrf_of(cookie))


@router.get("/session")
async def current(request: Request, response: Response, given: Given, who: Who) -> OwnSession:
    """The session that the request's cookie stands for."""
    session = await given.sessions.get(who, _session_id(who.actor))
    cookie = browsers.cookie_of(request, given.public_url)
    response.headers["cache-control"] = "no-store"
    return OwnSession(**dict(_show(session)), csrf=csrf_of(cookie))


@router.delete("/session", status_code=204)
async def sign_out(request: Request, given: Given, who: Who) -> Response:
    """End the session of the request's cookie."""
    await given.sessions.end(who, _session_id(who.actor))
    response = Response(status_code=204)
    browsers.set_cookie(response, request, given.public_url, value="", lasts_s=0)
    return response


@router.get("/sessions")
async def list_sessions(given: Given, who: Who, page: SessionPage) -> ListOf[SessionShape]:
    """Your sessions; the whole team's for who manages its people."""
    found = await given.sessions.list(who, page)
    return paged(found, page.limit - 1, _show, lambda session: session.id)


@router.delete("/sessions/{session}")
async def end(given: Given, who: Who, session: str) -> SessionShape:
    """It lets nobody in any more."""
    return _show(await given.sessions.end(who, session))


def _session_id(actor: str) -> str:
    found = actor.rpartition("/")[2]
    if is_id(found, SESSION_PREFIX):
        return found
    raise NotFound(
        "this request came with a token, not with a session",
        remediation="`POST /v1/session` begins one",
    )


def _slow_down(request: Request, given: Services) -> None:
    """Whoever asks has shown nothing yet, so it is counted by where they come from."""
    host = request.client.host if request.client else "unknown"
    if (wait_s := given.rate.take(f"sign-in from {host}")) > 0:
        raise LimitExceeded(
            "too many sign-ins from there", remediation="wait a little", retry_after_s=wait_s
        )


def _show(session: Session) -> SessionShape:
    return SessionShape(
        id=session.id,
        holder=session.holder,
        token_id=session.token_id or None,
        agent=session.agent,
        created_at=at(session.created_at),
        used_at=at(session.used_at),
        ends_at=at(ends_at(session)),
        ended_at=moment(session.ended_at),
    )
