"""Paddock: a self-hosted control plane for AI coding agents.

`from paddock import Sandbox` is the SDK: a client of a Paddock server.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.interfaces.client import (
        ApprovalRequired,
        AsyncCommand,
        AsyncSandbox,
        AsyncSpool,
        Broken,
        Command,
        CommandFailed,
        CommandResult,
        Conflict,
        Forbidden,
        InvalidRequest,
        LimitExceeded,
        NotFound,
        Output,
        PaddockError,
        ProviderError,
        Refused,
        Sandbox,
        SandboxInfo,
        Server,
        Spool,
        TimedOut,
        TooLarge,
        Unauthenticated,
        Unavailable,
        Unsupported,
    )

__version__ = "0.1.0"

__all__ = [
    "ApprovalRequired",
    "AsyncCommand",
    "AsyncSandbox",
    "AsyncSpool",
    "Broken",
    "Command",
    "CommandFailed",
    "CommandResult",
    "Conflict",
    "Forbidden",
    "InvalidRequest",
    "LimitExceeded",
    "NotFound",
    "Output",
    "PaddockError",
    "ProviderError",
    "Refused",
    "Sandbox",
    "SandboxInfo",
    "Server",
    "Spool",
    "TimedOut",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Imported when asked for: the package itself is imported by everything."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paddock.interfaces import client

    return getattr(client, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
