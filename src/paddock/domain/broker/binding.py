"""A binding: the hosts that a secret may be sent to, and the form in which it is sent there."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn

from paddock.domain.broker.models import KNOWN, Dialect, host_of
from paddock.domain.egress import names
from paddock.domain.egress.rule import Rule, parse
from paddock.domain.errors import InvalidRequest
from paddock.domain.secret import is_variable

LARGEST_VALUE = 8192
"""What still goes into a header."""
MOST_HOSTS = 50
_TLS_PORT = ((443, 443),)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_FRAMING = frozenset(
    ("connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade")
)
_ROUTE = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_BASE_URL = re.compile(r"https?://(?P<host>[A-Za-z0-9.-]+(:[0-9]{1,5})?)(/[A-Za-z0-9._~/-]*)?")
_PLAIN = "http://"
_PLAIN_PORT = 80
_LAST_PORT = 65535
_MOST_USD = 1_000_000
_PARAMETER = re.compile(r"[A-Za-z0-9._~-]{1,100}")


class Way(StrEnum):
    """How a secret is used at the hosts that it is bound to."""

    HEADER = "header"
    """In one header, which is added where a request lacks it."""
    BASIC = "basic"
    """As the password of basic authentication, which is added where a request lacks it."""
    QUERY = "query"
    """As a parameter of the query, which is added where a request lacks it."""
    GIT = "git"
    """As the password of git over HTTPS, and for nothing else that the host serves."""
    REGISTRY = "registry"
    """As a package registry's token: bearer, or basic authentication where a user is named."""
    PLACEHOLDER = "placeholder"
    """Wherever a request's headers, basic authentication or query hold the placeholder."""
    MODEL = "model"
    """As the key of a model API, behind a route that sandboxes find by a name of its own."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One way in which one secret is used."""

    team_id: str
    scope: str
    secret: str
    way: Way
    hosts: tuple[str, ...]
    """As rules of egress name them: `host`, `*.domain`, `host:8443`. Only TLS is spoken there."""
    header: str = ""
    format: str = ""
    """What the header has, with `{}` where the value belongs."""
    user: str = ""
    parameter: str = ""
    env: str = ""
    """The variable that holds the placeholder inside."""
    sandboxes: tuple[str, ...] = ()
    """Names or ids of those that it is for; empty is all of the team, or of the app."""
    expose: bool = False
    """The variable holds the value itself: whoever runs a command inside can read it."""
    expires_at: float | None = None
    route: str = ""
    """For `model`: one of those that are known, or a name of your own with a base URL."""
    base_url: str = ""
    spend_limit_usd: float | None = None
    """For `model`: of each sandbox, or of all that have the same label `task`."""
    changed_at: float = 0.0

    @property
    def is_plain(self) -> bool:
        """A model API over plain HTTP, such as one on this host or in a private network."""
        return self.base_url.startswith(_PLAIN)

    @property
    def base_path(self) -> str:
        return "/" + path if (path := self.base_url.partition("://")[2].partition("/")[2]) else ""

    def is_for(self, sandbox_id: str, name: str) -> bool:
        return not self.sandboxes or sandbox_id in self.sandboxes or name in self.sandboxes


def unusable(value: str) -> str:
    """Why a value cannot be put into a request; empty when it can."""
    if not value:
        return "it is empty"
    if len(value) > LARGEST_VALUE:
        return f"it has {len(value)} characters, and {LARGEST_VALUE} is the most"
    if not value.isprintable():
        return "it is of more than one line, or has characters that cannot be printed"
    return ""


def completed(binding: Binding) -> Binding:
    """With what goes without saying said. InvalidRequest that says what is wrong with it."""
    binding = _routed(binding)
    hosts = binding.hosts
    if not binding.is_plain:
        hosts = checked_hosts(binding.secret, binding.hosts)
    header, form, user, parameter = binding.header, binding.format, binding.user, binding.parameter
    if binding.way is Way.HEADER:
        header = header or "Authorization"
        form = form or ("Bearer {}" if header.lower() == "authorization" else "{}")
    if binding.way in (Way.GIT, Way.BASIC):
        user = user or "x-access-token"
    check_header(header, form)
    _check_use(binding.way, user, parameter)
    env = binding.env or (binding.secret if is_variable(binding.secret) else "")
    if env and not is_variable(env):
        _refuse(f"{env[:80]!r} is no name of a variable", "use letters, digits and '_'")
    return Binding(
        team_id=binding.team_id,
        scope=binding.scope,
        secret=binding.secret,
        way=binding.way,
        hosts=hosts,
        header=header,
        format=form,
        user=user,
        parameter=parameter,
        env=env,
        sandboxes=tuple(dict.fromkeys(binding.sandboxes)),
        expose=binding.expose,
        expires_at=binding.expires_at,
        route=binding.route,
        base_url=binding.base_url,
        spend_limit_usd=binding.spend_limit_usd,
        changed_at=binding.changed_at,
    )


def _routed(binding: Binding) -> Binding:
    """A route says the host itself."""
    if binding.way is not Way.MODEL:
        if binding.route or binding.base_url or binding.spend_limit_usd is not None:
            _refuse("only `model` has a route, a base URL and a spend limit", "bind it as `model`")
        return binding
    known = KNOWN.get(binding.route)
    if not _ROUTE.fullmatch(binding.route):
        _refuse(f"{binding.route[:80]!r} is no route", f"use one of {', '.join(KNOWN)}, or a name")
    url = (binding.base_url or (known.base_url if known else "")).rstrip("/")
    matched = _BASE_URL.fullmatch(url)
    if matched is None:
        _refuse(
            f"{binding.base_url[:80]!r} is not a valid base URL for route {binding.route}",
            "give one such as https://llm.example.com/v1, or http://127.0.0.1:11434/v1 for a model "
            "on this host or in a private network",
        )
    if url.startswith(_PLAIN):
        plain_place(matched["host"])
    if binding.hosts and tuple(binding.hosts) != (matched["host"],):
        _refuse("a route goes to the host of its base URL alone", "leave the hosts out")
    if binding.spend_limit_usd is not None and not 0 <= binding.spend_limit_usd < _MOST_USD:
        _refuse(f"a limit of {binding.spend_limit_usd} USD is none", "give dollars, such as 2.50")
    env = binding.env or (known.key_variable if known else f"{_variable(binding.route)}_API_KEY")
    return replace(binding, hosts=(matched["host"],), base_url=url, env=env)


def _variable(route: str) -> str:
    return route.replace("-", "_").upper()


def url_inside(binding: Binding) -> tuple[str, str]:
    """The variable that clients read the base URL of a route from, and what it has inside."""
    known = KNOWN.get(binding.route)
    name = known.url_variable if known else f"{_variable(binding.route)}_BASE_URL"
    own = known is not None and binding.base_url == known.base_url
    return name, f"http://{host_of(binding.route)}{known.suffix if known and own else ''}"


def dialect_of(route: str) -> Dialect:
    """Whoever is not known speaks as most do."""
    known = KNOWN.get(route)
    return known.dialect if known else Dialect.OPENAI


def checked_hosts(secret: str, hosts: Sequence[str]) -> tuple[str, ...]:
    if not hosts:
        _refuse(
            f"the secret {secret} would be bound to no host, so it could never be used",
            "name the hosts that it is for, such as `api.example.com`",
        )
    if len(hosts) > MOST_HOSTS:
        _refuse(f"there are {len(hosts)} hosts; {MOST_HOSTS} is the most", "use `*.example.org`")
    return tuple(dict.fromkeys(host_rule(host).text for host in hosts))


def host_rule(text: str) -> Rule:
    """A host in the form of a rule. It is never an address: no certificate tells whose that is."""
    rule = parse(text)
    if rule.network is not None or rule.looks_at_requests or not rule.allows or "://" in text:
        _refuse(f"{text[:80]!r} is no host", "name it as `host`, `*.domain` or `host:8443`")
    if rule.host.startswith("*") and rule.host.count(".") < 2:
        _refuse(
            f"{text[:80]!r} is nearly every host, and one of them is an attacker's",
            "name a domain of your own, such as `*.example.org`",
        )
    if ":" in rule.text:
        return rule
    return Rule(allows=True, host=rule.host, ports=_TLS_PORT, text=rule.text)


def plain_place(text: str) -> tuple[str, int]:
    """The name or address, and the port, of a base URL over plain HTTP."""
    host, _, port = text.partition(":")
    number = int(port or _PLAIN_PORT)
    try:
        known = names.normal(host) or str(ipaddress.IPv4Address(host))
    except ValueError:
        known = ""
    if not known or not 0 < number <= _LAST_PORT:
        _refuse(f"{text[:80]!r} is no host", "name it as `host:11434` or `192.168.1.5:11434`")
    return known, number


def check_header(header: str, form: str) -> None:
    """A header to put something in, and the form of it. InvalidRequest for what is neither."""
    if header and (not _HEADER.fullmatch(header) or header.lower() in _FRAMING):
        _refuse(f"{header[:80]!r} is no header to put a secret in", "such as `X-Api-Key`")
    if form and (form.count("{}") != 1 or not form.isprintable() or not form.isascii()):
        _refuse(f"the format {form[:80]!r} has no place for the value", "such as `Bearer {}`")


def _check_use(way: Way, user: str, parameter: str) -> None:
    if way is Way.QUERY and not _PARAMETER.fullmatch(parameter):
        _refuse(f"{parameter[:80]!r} is no parameter of a query", "name one, such as `api_key`")
    if ":" in user or not user.isprintable() or len(user) > 200:
        _refuse(f"{user[:80]!r} is no user of basic authentication", "it has no colon in it")


def _refuse(what: str, remediation: str) -> NoReturn:
    raise InvalidRequest(what, remediation=remediation)
