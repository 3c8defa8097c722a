"""The environment a command starts with."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import invalid
from .users import Account

AGENTS_BIN = "/opt/paddock/agents/bin"
"""The programs of installed agents, where the provider shows them; see `domain.agent.AGENTS`."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def encode(text: str) -> bytes:
    """Text of the protocol as the kernel sees it; bytes that are no UTF-8 come back as before."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise invalid(f"{text!r} holds half a surrogate pair, which stands for no bytes") from None


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def basic(account: Account, sandbox_id: str) -> dict[str, str]:
    """What every command finds, before the sandbox's own variables and the call's."""
    path = SYSTEM_PATH if account.uid == 0 else f"{account.home}/.local/bin:{SYSTEM_PATH}"
    return {
        "PATH": path,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": "C.UTF-8",
        "E2B_SANDBOX": "true",
        "PADDOCK_SANDBOX_ID": sandbox_id,
    }


def with_agents(path: str) -> str:
    """Agents come last: a program of the template stands before one of the host."""
    return f"{path}:{AGENTS_BIN}" if os.path.isdir(AGENTS_BIN) else path


def pack(*layers: Mapping[str, str]) -> dict[bytes, bytes]:
    """The layers over one another, in the form execve takes."""
    packed: dict[bytes, bytes] = {}
    for layer in layers:
        for name, value in layer.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise invalid(f"environment variable {name!r} cannot be passed to a program")
            packed[encode(name)] = encode(value)
    return packed
