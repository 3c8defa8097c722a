"""For providers that keep no volumes: the proper refusal."""

from typing import NoReturn

from paddock.domain.errors import Unsupported
from paddock.ports.provider import SandboxSpec


def refuse_volumes(provider: str) -> NoReturn:
    raise Unsupported(
        f"provider {provider} keeps no volumes: its capability `volumes` is off",
        remediation="choose a provider whose capabilities have `volumes`, or copy the files in",
    )


def check_no_volumes(provider: str, spec: SandboxSpec) -> None:
    if spec.volumes:
        refuse_volumes(provider)
