"""E2B's rules about hosts as headers of a sandbox's own."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddock.domain.broker.headers import OwnHeader
from paddock.domain.errors import Unsupported
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services
from paddock.interfaces.e2b.network import HostRule
from paddock.interfaces.e2b.secret_names import find_secret

_FILLED = re.compile(r"\$\{e2b\.([^{}]*)\}")
_SECRETS = "secrets."
_HIDDEN = "***"


async def headers_of(
    given: Services, who: Principal, rules: Mapping[str, Sequence[HostRule]]
) -> Sequence[OwnHeader]:
    """Of several rules of a host the later ones stand over the earlier. They can be put; where a
    secret is named, this takes who may use it."""
    headers = [
        _header(host, name, value)
        for host, several in rules.items()
        for rule in several
        if rule.transform is not None
        for name, value in rule.transform.headers.items()
    ]
    found = [await _of_team(given, who, each) for each in headers]
    await given.e2b.headers.check(who, found)
    return found


def _header(host: str, name: str, value: str) -> OwnHeader:
    filled = _FILLED.findall(value)
    if not filled:
        return OwnHeader(host, name, value=value)
    if len(filled) > 1 or not filled[0].startswith(_SECRETS):
        raise Unsupported(
            f"the header {name[:80]} for {host[:80]} is made of ${{e2b.{filled[-1][:80]}}}, which "
            "cannot be put in here",
            remediation="use one Secret.fill(...) in a header, and no token of an identity",
        )
    secret = filled[0].removeprefix(_SECRETS)
    return OwnHeader(host, name, format=_FILLED.sub("{}", value), secret=secret)


async def _of_team(given: Services, who: Principal, header: OwnHeader) -> OwnHeader:
    if not header.secret:
        return header
    return replace(header, secret=(await find_secret(given, who, header.secret)).name)


def described(headers: Iterable[OwnHeader]) -> dict[str, Any]:
    """By host. A value that is secret is not told again."""
    found: dict[str, dict[str, str]] = {}
    for each in headers:
        value = _HIDDEN if each.is_secret else each.value
        if each.secret:
            value = f"${{e2b.{_SECRETS}{each.secret}}}"
        found.setdefault(each.host, {})[each.header] = each.format.replace("{}", value)
    return {host: [{"transform": {"headers": told}}] for host, told in found.items()}
