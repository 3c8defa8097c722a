"""Paddock: a self-hosted control plane for AI coding agents.

`from paddock import Sandbox` is the SDK: a client of a Paddock server.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.interfaces.client import (
        AgentInfo,
        Agents,
        ApprovalInfo,
        ApprovalRequired,
        Approvals,
        AsyncAgents,
        AsyncApprovals,
        AsyncAttempts,
        AsyncCommand,
        AsyncQuotas,
        AsyncSandbox,
        AsyncSecrets,
        AsyncSpool,
        AsyncTask,
        AsyncVolume,
        Attempts,
        BindingInfo,
        Broken,
        Command,
        CommandFailed,
        CommandResult,
        Conflict,
        CredentialInfo,
        Forbidden,
        InvalidRequest,
        LimitExceeded,
        NotFound,
        Output,
        PaddockError,
        ProviderError,
        QuotaExceeded,
        QuotaInfo,
        Quotas,
        Refused,
        Sandbox,
        SandboxInfo,
        SecretInfo,
        Secrets,
        Server,
        Spending,
        Spool,
        Task,
        TaskInfo,
        TaskSummary,
        TimedOut,
        TooLarge,
        Unauthenticated,
        Unavailable,
        Unsupported,
        Volume,
        VolumeInfo,
    )

__version__ = "0.1.0"

__all__ = [
    "AgentInfo",
    "Agents",
    "ApprovalInfo",
    "ApprovalRequired",
    "Approvals",
    "AsyncAgents",
    "AsyncApprovals",
    "AsyncAttempts",
    "AsyncCommand",
    "AsyncQuotas",
    "AsyncSandbox",
    "AsyncSecrets",
    "AsyncSpool",
    "AsyncTask",
    "AsyncVolume",
    "Attempts",
    "BindingInfo",
    "Broken",
    "Command",
    "CommandFailed",
    "CommandResult",
    "Conflict",
    "CredentialInfo",
    "Forbidden",
    "InvalidRequest",
    "LimitExceeded",
    "NotFound",
    "Output",
    "PaddockError",
    "ProviderError",
    "QuotaExceeded",
    "QuotaInfo",
    "Quotas",
    "Refused",
    "Sandbox",
    "SandboxInfo",
    "SecretInfo",
    "Secrets",
    "Server",
    "Spending",
    "Spool",
    "Task",
    "TaskInfo",
    "TaskSummary",
    "TimedOut",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "Volume",
    "VolumeInfo",
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
