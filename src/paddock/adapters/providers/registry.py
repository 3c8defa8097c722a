"""Which providers there are, where each is found, and what they can do side by side."""

from collections.abc import Callable, Mapping
from pkgutil import resolve_name

from paddock.domain.errors import Broken, NotFound
from paddock.ports.provider import Capabilities, PauseKind, Provider

Factory = Callable[..., Provider]

# One line here is the whole registration: API, CLI and console list these names. The value is
# `module:attribute` and imported only when it is asked for, so that a provider whose packages are
# not installed costs nothing and disturbs nobody.
PROVIDERS: Mapping[str, str] = {
    "local": "paddock.adapters.providers.local.provider:LocalProvider",
    "docker": "paddock.adapters.providers.docker.provider:DockerProvider",
}

# In the order of the table; every field of Capabilities has a line.
_ROWS: Mapping[str, str] = {
    "isolation": "isolation",
    "pause": "pause keeps",
    "stop": "stop and start",
    "archive": "archive",
    "sleeping_disk": "files of a stopped sandbox",
    "snapshot": "snapshot",
    "snapshot_ignore": "snapshot that leaves paths out",
    "fork": "fork",
    "checkpoint": "memory to disk and back",
    "egress": "egress policy",
    "live_egress": "egress policy while running",
    "allowlist": "egress by an allowlist",
    "any_image": "any OCI image",
    "late_ports": "ports opened later",
    "metrics": "metrics",
    "disk_limit": "disk limit enforced",
    "volumes": "volumes shared by sandboxes",
    "agents": "agents of the host, read-only",
    "expires_itself": "ends sandboxes by itself",
    "max_lifetime_s": "longest lifetime",
    "max_ports": "most ports",
    "max_labels": "most labels",
}


def names(registered: Mapping[str, str] = PROVIDERS) -> tuple[str, ...]:
    return tuple(sorted(registered))


def load(name: str, registered: Mapping[str, str] = PROVIDERS) -> Factory:
    """The factory of a provider. NotFound lists what there is; Broken says what failed to load."""
    if name not in registered:
        known = ", ".join(names(registered)) or "none at all"
        raise NotFound(
            f"there is no provider {name!r}; registered are: {known}",
            remediation="choose one of these, or register yours in "
            "paddock/adapters/providers/registry.py",
        )
    try:
        factory: Factory = resolve_name(registered[name])
    except (ImportError, AttributeError, ValueError) as error:
        raise Broken(
            f"provider {name} could not be loaded from {registered[name]}: {error}",
            remediation="install what it needs, or correct its line in the registry",
        ) from error
    return factory


def capability_table(providers: Mapping[str, Capabilities]) -> str:
    """A Markdown table, one column per provider, for the README and the reference."""
    header = ["", *providers]
    lines = [header, ["---"] * len(header)]
    for field, label in _ROWS.items():
        lines.append([label, *(_cell(getattr(able, field), field) for able in providers.values())])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object, field: str) -> str:
    if value is None:
        return "any"
    if value is True:
        return "yes"
    if value is False or value is PauseKind.NO:
        return "–"
    if field.endswith("_s") and isinstance(value, int | float):
        return f"{value / 3600:g} h"
    return str(value)
