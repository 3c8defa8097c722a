"""Bindings of secrets, and how they stand for a sandbox."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from paddock.domain.broker.binding import MOST_HOSTS, Binding, Way
from paddock.domain.secret import app_of, scope_of
from paddock.interfaces.api.schemas.common import Shape, Text, at, moment
from paddock.services.broker import Standing

_Host = Annotated[Text, Field(max_length=500)]
_Short = Annotated[Text, Field(max_length=200)]


class PutBinding(Shape):
    """Where a secret may be sent, and in which form."""

    hosts: list[_Host] = Field(
        default_factory=list,
        max_length=MOST_HOSTS,
        description="as rules of egress name them: `host`, `*.domain`, `host:8443`; TLS only",
    )
    header: Annotated[_Short, Field(description="for `header`; `Authorization` unless said")] = ""
    format: Annotated[
        _Short, Field(description="of the header, `{}` being the value: such as `Bearer {}`")
    ] = ""
    user: Annotated[
        _Short, Field(description="of basic authentication, for `basic`, `git` and `registry`")
    ] = ""
    parameter: Annotated[_Short, Field(description="of the query, for `query`")] = ""
    env: Annotated[
        _Short,
        Field(
            description="the variable that has the placeholder inside; the secret's name if left"
        ),
    ] = ""
    sandboxes: list[_Short] = Field(
        default_factory=list,
        max_length=500,
        description="names or ids of those that it is for; all if left out",
    )
    expose: Annotated[
        bool,
        Field(description="the variable has the value itself, for programs that cannot do without"),
    ] = False
    expires_at: datetime | None = None
    route: Annotated[
        _Short,
        Field(description="for `model`: anthropic, openai, gemini, openrouter, or one of your own"),
    ] = ""
    base_url: Annotated[
        _Short,
        Field(
            description="of a route of your own: an OpenAI-compatible https:// URL; operators may "
            "give an http:// one"
        ),
    ] = ""
    spend_limit_usd: Annotated[
        float | None,
        Field(description="of each sandbox, or of all sandboxes with the same label `task`"),
    ] = None

    def read(self, team_id: str, app: str, secret: str, way: Way) -> Binding:
        return Binding(
            team_id=team_id,
            scope=scope_of(app),
            secret=secret,
            way=way,
            hosts=tuple(self.hosts),
            header=self.header,
            format=self.format,
            user=self.user,
            parameter=self.parameter,
            env=self.env,
            sandboxes=tuple(self.sandboxes),
            expose=self.expose,
            expires_at=self.expires_at.timestamp() if self.expires_at else None,
            route=self.route,
            base_url=self.base_url,
            spend_limit_usd=self.spend_limit_usd,
        )


class BindingShape(Shape):
    """A binding. What does not belong to its way is empty."""

    secret: str
    app: str | None
    way: Way
    hosts: list[str]
    header: str
    format: str
    user: str
    parameter: str
    env: str
    sandboxes: list[str]
    expose: bool
    expires_at: datetime | None
    route: str
    base_url: str
    spend_limit_usd: float | None
    changed_at: datetime


class Bindings(Shape):
    """All there are."""

    items: list[BindingShape]


class CredentialShape(Shape):
    """How a binding stands for one sandbox."""

    binding: BindingShape
    placeholder: str = Field(description="what its programs have, and send")
    exposed: bool = Field(description="they have the value itself")
    works: bool
    why_not: str = Field(description="what keeps it from being put into requests; empty if nothing")


class Credentials(Shape):
    """All that a sandbox has."""

    items: list[CredentialShape]


def show_binding(binding: Binding) -> BindingShape:
    return BindingShape(
        secret=binding.secret,
        app=app_of(binding.scope) or None,
        way=binding.way,
        hosts=list(binding.hosts),
        header=binding.header,
        format=binding.format,
        user=binding.user,
        parameter=binding.parameter,
        env=binding.env,
        sandboxes=list(binding.sandboxes),
        expose=binding.expose,
        expires_at=moment(binding.expires_at),
        route=binding.route,
        base_url=binding.base_url,
        spend_limit_usd=binding.spend_limit_usd,
        changed_at=at(binding.changed_at),
    )


def show_standing(standing: Standing) -> CredentialShape:
    return CredentialShape(
        binding=show_binding(standing.binding),
        placeholder=standing.placeholder,
        exposed=standing.exposed,
        works=standing.works,
        why_not=standing.why_not,
    )
