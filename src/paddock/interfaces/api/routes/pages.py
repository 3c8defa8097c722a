"""`/` and `/signin`: the pages for a browser until the console exists."""

import html
from collections.abc import Mapping
from importlib import resources

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from paddock import __version__
from paddock.domain.errors import Unauthenticated
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.interfaces import preview
from paddock.interfaces.api.context import Given, Services, principal
from paddock.interfaces.preview.pages import PageTemplate, page_template
from paddock.ports.store import Page, SandboxFilter

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
_SHOWN = 50
_THERE = frozenset(SandboxState) - {SandboxState.DELETING, SandboxState.DELETED}


def _read(name: str) -> PageTemplate:
    return page_template(resources.files("paddock.interfaces.api").joinpath(name).read_text())


_START, _SIGN_IN = _read("start.html"), _read("signin.html")
_STYLE = resources.files(preview).joinpath("page.css").read_text()


@router.get("/")
async def start(request: Request, given: Given) -> HTMLResponse:
    """Show what runs here and, to a signed-in browser, the team's sandboxes."""
    try:
        who = await principal(request)
    except Unauthenticated:
        hint = "Sign in to see your sandboxes. <code>paddock login</code> prints a link."
        parts = {"body": f"<p>{hint}</p>", "links": '<a href="signin">Sign in</a>', "out": "hidden"}
        return _page(_START, parts)
    sandboxes = await _sandboxes(given, who)
    body = await _heading(given, who) + _table(sandboxes)
    return _page(_START, {"body": body, "links": "", "out": "hidden" if given.anyone else ""})


@router.get("/signin")
async def sign_in() -> HTMLResponse:
    """Exchange the link in the address, or a token, for a session. The link is behind the `#`, so
    that it is in no server's log; only the page's script sees it."""
    return _page(_SIGN_IN, {})


async def _heading(given: Services, who: Principal) -> str:
    team = await given.access.team_of(who)
    person = await given.people.get(who, who.person_id) if who.person_id else None
    name = person.name if person else who.holder
    return f"<p>{html.escape(name)} ({who.role}), team {html.escape(team.name)}</p>"


async def _sandboxes(given: Services, who: Principal) -> list[SandboxRecord]:
    if Scope.SANDBOXES_READ not in who.scopes:
        return []
    wanted = SandboxFilter(states=_THERE)
    return list(await given.sandboxes.list(who, wanted, Page(limit=_SHOWN)))


def _table(sandboxes: list[SandboxRecord]) -> str:
    if not sandboxes:
        return "<p class=hint>No sandboxes. Create one: <code>paddock create --name demo</code></p>"
    rows = "".join(
        f"<tr><td>{html.escape(each.name)}<td>{each.state}<td>{html.escape(each.template)}"
        for each in sandboxes
    )
    more = f"<p class=hint>The newest {_SHOWN}: <code>paddock ls</code> lists all.</p>"
    end = more if len(sandboxes) == _SHOWN else ""
    return f"<table><tr><th>Sandbox<th>State<th>Template{rows}</table>{end}"


def _page(template: PageTemplate, parts: Mapping[str, str]) -> HTMLResponse:
    common = {"style": _STYLE, "version": html.escape(__version__)}
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; {template.policy}; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "content-security-policy": policy,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
    return HTMLResponse(template.filled({**common, **parts}), headers=headers)
