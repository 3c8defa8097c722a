"""The Python SDK: a client of a Paddock server's HTTP API.

`AsyncSandbox` is the implementation; `Sandbox` is the same for programs without an event loop.
"""

from paddock.domain.errors import (
    ApprovalRequired,
    Broken,
    Conflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PaddockError,
    ProviderError,
    Refused,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from paddock.interfaces.client.blocking.command import Command
from paddock.interfaces.client.blocking.sandbox import Sandbox
from paddock.interfaces.client.blocking.spool import Spool
from paddock.interfaces.client.command import AsyncCommand
from paddock.interfaces.client.failures import CommandFailed
from paddock.interfaces.client.results import CommandResult, Output, SandboxInfo
from paddock.interfaces.client.sandbox import AsyncSandbox
from paddock.interfaces.client.server import Server
from paddock.interfaces.client.spool import AsyncSpool

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
]
