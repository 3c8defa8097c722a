"""References to container images, and which of them a tenant may use."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Self

from paddock.domain.egress import names
from paddock.domain.errors import InvalidRequest
from paddock.domain.template import is_image

LAYOUT = "oci:"
ARCHIVES = ("oci-archive:", "docker-archive:")
ENGINE = "docker:"
"""An image that the Docker engine of this host has."""
DOCKER_HUB = "docker.io"

_SCHEME = "docker://"
_TRANSPORTS = frozenset(
    "atomic containers-storage dir docker docker-archive docker-daemon oci oci-archive ostree "
    "sha256 sif tarball".split()
)
"""Includes `sha256`, with which engines refer to images by ID."""
_HOST = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_PATH = re.compile(
    r"[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*)*"
    r"(?::[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image in a registry."""

    host: str
    port: int | None
    path: str
    """Includes the tag or digest."""

    @property
    def registry(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.registry}/{self.path}"

    @classmethod
    def parse(cls, reference: str) -> Self:
        """Raise InvalidRequest for anything else. A first part with a dot or a port is a host."""
        bare = reference.removeprefix(_SCHEME)
        first, slash, rest = bare.partition("/")
        if not slash or not ("." in first or ":" in first or first == "localhost"):
            first, rest = DOCKER_HUB, bare if slash else f"library/{bare}"
        host, colon, port = first.partition(":")
        if not (_is_host(host) and _PATH.fullmatch(rest) and (not colon or _is_port(port))):
            raise InvalidRequest(
                f"{reference[:80]!r} is neither a template nor the name of an image",
                remediation="`paddock template ls` shows the templates; an image is named like "
                "debian:12 or registry.example/team/image@sha256:…",
            )
        return cls(host, int(port) if port else None, rest)


def is_local(reference: str) -> bool:
    """Whether it begins with a transport that reads the host's files or its engine."""
    transport, colon, _ = reference.partition(":")
    return bool(colon) and transport in _TRANSPORTS and not reference.startswith(_SCHEME)


def check_tenants(template: str) -> None:
    """Raise InvalidRequest unless it is a template's name or an image in a registry.

    The server would read anything else from its own host with its own rights. Only operators may
    use such images, by creating a template.
    """
    if not is_image(template):
        return
    if is_local(template):
        raise InvalidRequest(
            f"{template[:80]!r} names an image on the server's host; use a template or an image in "
            "a registry",
            remediation="an operator can create a template from it: `paddock template add NAME "
            "--from-image …`; for an image of that name on Docker Hub use docker.io/library/…",
        )
    RegistryImage.parse(template)


def _is_host(text: str) -> bool:
    """Whether it is a name or an IPv4 address that every program reads alike. `127.1` is not."""
    if not _HOST.fullmatch(text):
        return False
    return bool(names.normal(text)) or _is_ipv4(text)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536
