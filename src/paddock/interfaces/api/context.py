"""What the routes are given: the services, and who is asking."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header
from starlette.requests import HTTPConnection

from paddock.domain.errors import InvalidRequest, LimitExceeded, Unauthenticated
from paddock.domain.team import Principal
from paddock.interfaces.api import browsers
from paddock.interfaces.api.limits import RateLimit
from paddock.interfaces.api.metrics import Metrics
from paddock.interfaces.api.middleware import Authenticate
from paddock.interfaces.api.tracing import Begin
from paddock.interfaces.e2b.services import E2bServices
from paddock.ports.store import Store
from paddock.services.access import Access
from paddock.services.agents import Agents
from paddock.services.approvals import Approvals
from paddock.services.archives import Archives
from paddock.services.audit_guard import AuditGuard
from paddock.services.bindings import Bindings
from paddock.services.broker import Broker
from paddock.services.care import Care
from paddock.services.commands import Commands
from paddock.services.egress import Egress
from paddock.services.environment import Environment
from paddock.services.events import EventFeed
from paddock.services.files import Files
from paddock.services.health import ProviderHealth
from paddock.services.history import History
from paddock.services.inside import Inside
from paddock.services.intake import Intake
from paddock.services.keeping import AutomaticSnapshots
from paddock.services.people import People
from paddock.services.policies import Policies
from paddock.services.pools import Pools
from paddock.services.previews import Previews
from paddock.services.providers import Providers
from paddock.services.purges import Purges
from paddock.services.quotas import Quotas
from paddock.services.sandboxes import Sandboxes
from paddock.services.secrets import Secrets
from paddock.services.sessions import Sessions
from paddock.services.settings import SettingsAtWork
from paddock.services.snapshots import Snapshots
from paddock.services.ssh import Ssh
from paddock.services.task_attempts import Attempts
from paddock.services.tasks import Tasks
from paddock.services.templates import Templates
from paddock.services.terminals import Terminals
from paddock.services.volumes import Volumes
from paddock.services.work import WorkInside

LONGEST_KEY = 200
TOKEN_PROTOCOL = "paddock.token."  # noqa: S105 - what a protocol begins with


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the API can do."""

    store: Store
    access: Access
    people: People
    purges: Purges
    quotas: Quotas
    sandboxes: Sandboxes
    environment: Environment
    commands: Commands
    files: Files
    archives: Archives
    terminals: Terminals
    work: WorkInside
    inside: Inside
    policies: Policies
    egress: Egress
    approvals: Approvals
    pools: Pools
    snapshots: Snapshots
    automatic: AutomaticSnapshots
    events: EventFeed
    intake: Intake
    audit: AuditGuard
    history: History
    previews: Previews
    e2b: E2bServices
    preview_domain: str
    public_url: str
    ssh: Ssh
    providers: Providers
    health: ProviderHealth
    metrics: Metrics
    settings: SettingsAtWork
    secrets: Secrets
    bindings: Bindings
    broker: Broker
    agents: Agents
    templates: Templates
    volumes: Volumes
    tasks: Tasks
    attempts: Attempts
    care: Care
    rate: RateLimit
    trace: Begin | None = None
    """What begins a trace; None when none is wanted."""
    anyone: Principal | None = None
    """Who acts when nobody has to say who they are; None asks for a token."""

    @property
    def sessions(self) -> Sessions:
        return self.people.sessions


# All dependencies are `async def`: FastAPI would send plain functions through a thread.
async def services(connection: HTTPConnection) -> Services:
    return services_of(connection)


def services_of(connection: HTTPConnection) -> Services:
    found: Services = connection.app.state.services
    return found


async def principal(connection: HTTPConnection) -> Principal:
    """Whom the request acts for: `Authorization: Bearer TOKEN`, `X-API-Key: TOKEN`, or a session's
    cookie."""
    given = services_of(connection)
    if given.anyone is not None:
        browsers.check_origin(connection, given.public_url)
        return given.anyone
    who = await _authenticated(connection, given)
    if (wait_s := given.rate.take(who.actor)) > 0:
        raise LimitExceeded(
            f"{who.actor} has made too many requests",
            remediation=f"wait {wait_s:.1f} s; streams and events need no polling",
            retry_after_s=wait_s,
        )
    return who


def authenticator(given: Services) -> Authenticate:
    """For requests whose body is read before `principal` is asked."""

    async def authenticate(connection: HTTPConnection) -> None:
        if given.anyone is None:
            await _authenticated(connection, given)

    return authenticate


async def _authenticated(connection: HTTPConnection, given: Services) -> Principal:
    if presented := _presented(connection):
        return await given.access.authenticate(presented)
    if cookie := browsers.cookie_of(connection, given.public_url):
        who = await given.sessions.authenticate(cookie)
        browsers.check_intended(connection, cookie, given.public_url)
        return who
    raise Unauthenticated(
        "this needs a token",
        remediation="send `Authorization: Bearer TOKEN`; the first one is in the data directory, "
        "in the file admin-token",
    )


def _presented(connection: HTTPConnection) -> str:
    kind, _, value = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value.strip():
        return value.strip()
    if key := connection.headers.get("x-api-key"):
        return key
    # A page in a browser cannot set headers of a WebSocket, but it can offer protocols.
    for offered in connection.scope.get("subprotocols", ()):
        if offered.startswith(TOKEN_PROTOCOL):
            return str(offered.removeprefix(TOKEN_PROTOCOL))
    return ""


async def idempotency_key(
    value: Annotated[str, Header(alias="Idempotency-Key", max_length=LONGEST_KEY)] = "",
) -> str:
    if value and not (value.isascii() and value.isprintable() and len(value) <= LONGEST_KEY):
        raise InvalidRequest(
            "the Idempotency-Key is not usable",
            remediation=f"use at most {LONGEST_KEY} printable ASCII characters",
        )
    return value


Given = Annotated[Services, Depends(services)]
Who = Annotated[Principal, Depends(principal)]
Key = Annotated[str, Depends(idempotency_key)]
