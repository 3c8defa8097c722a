"""Configuration of a team and of its apps: what of it may be read again, and where it may go."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.domain.errors import Forbidden, InvalidRequest
from paddock.domain.records import check_name

TEAM_SCOPE = "team"
"""It belongs to the whole team; what belongs to one app has a scope of its own."""
_APP_SCOPE = "app:"
LARGEST = 64 << 10
_MOST_LABELS, _LONGEST_LABEL, _LONGEST_NOTE, _LARGEST_LABELS = 32, 128, 1024, 8192
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AccessPolicy(StrEnum):
    """Where a value may go. The control plane itself may always use it."""

    CONTROL_PLANE_ONLY = "control_plane_only"
    AGENT_ACCESS = "agent_access"
    RUNTIME_ACCESS = "runtime_access"
    BOTH = "both"


class Use(StrEnum):
    """Who wants a value."""

    CONTROL_PLANE = "control_plane"
    AGENT = "agent"
    RUNTIME = "runtime"


_ALLOWS = {
    AccessPolicy.CONTROL_PLANE_ONLY: {Use.CONTROL_PLANE},
    AccessPolicy.AGENT_ACCESS: {Use.CONTROL_PLANE, Use.AGENT},
    AccessPolicy.RUNTIME_ACCESS: {Use.CONTROL_PLANE, Use.RUNTIME},
    AccessPolicy.BOTH: set(Use),
}


def scope_of(app: str) -> str:
    """Where an app's configuration is kept; without an app, the team's.

    An app is a name that the team chose: it is there as soon as something is set for it.
    """
    return _APP_SCOPE + check_name(app) if app else TEAM_SCOPE


def app_of(scope: str) -> str:
    return scope.removeprefix(_APP_SCOPE) if scope.startswith(_APP_SCOPE) else ""


def may_go(policy: AccessPolicy, use: Use) -> bool:
    return use in _ALLOWS[policy]


def widens(before: AccessPolicy, after: AccessPolicy) -> bool:
    """Whether a value could go somewhere where it could not go before."""
    return not _ALLOWS[after] <= _ALLOWS[before]


def is_variable(name: str) -> bool:
    """Whether an environment can have it: a name with a dot or a hyphen is Paddock's own."""
    return bool(_VARIABLE.fullmatch(name))


@dataclass(frozen=True, slots=True)
class Secret:
    """One value of a team's configuration, sealed."""

    team_id: str
    scope: str
    name: str
    version: int
    sensitive: bool
    policy: AccessPolicy
    key_id: str
    """The key that seals it."""
    sealed: str = field(repr=False)
    created_at: float
    changed_at: float
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the team notes about it; everybody who may list it reads them."""


def associated(team_id: str, scope: str, name: str, version: int) -> bytes:
    """What a sealed value is bound to: moved to another place, it does not open."""
    return f"{team_id}|{scope}|{name}|{version}".encode()


def check_secret_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    raise InvalidRequest(
        f"the name {name[:80]!r} is not usable",
        remediation="begin with a letter or '_'; then letters, digits, '_', '.', '-'; at most 256",
    )


def check_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    sizes = [(len(key.encode()), len(value.encode())) for key, value in labels.items()]
    if (
        len(sizes) > _MOST_LABELS
        or any(not 0 < key <= _LONGEST_LABEL or value > _LONGEST_NOTE for key, value in sizes)
        or sum(map(sum, sizes)) > _LARGEST_LABELS
    ):
        raise InvalidRequest(
            f"these {len(sizes)} labels are too many or too long",
            remediation=f"at most {_MOST_LABELS}, keys of 1 to {_LONGEST_LABEL} bytes, values of "
            f"at most {_LONGEST_NOTE}, {_LARGEST_LABELS} in all",
        )
    return labels


def check_use(secret: Secret, use: Use) -> None:
    """Forbidden unless the policy lets it go there."""
    if may_go(secret.policy, use):
        return
    raise Forbidden(
        f"{secret.name} is {secret.policy}, so it does not go to the {use}",
        remediation="change its policy, if it should",
    )
