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
    QuotaExceeded,
    Refused,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from paddock.interfaces.client.agents import AsyncAgents
from paddock.interfaces.client.approvals import AsyncApprovals
from paddock.interfaces.client.attempts import AsyncAttempts
from paddock.interfaces.client.blocking.agents import Agents
from paddock.interfaces.client.blocking.approvals import Approvals
from paddock.interfaces.client.blocking.attempts import Attempts
from paddock.interfaces.client.blocking.command import Command
from paddock.interfaces.client.blocking.quotas import Quotas
from paddock.interfaces.client.blocking.sandbox import Sandbox
from paddock.interfaces.client.blocking.secrets import Secrets
from paddock.interfaces.client.blocking.spool import Spool
from paddock.interfaces.client.blocking.task import Task
from paddock.interfaces.client.blocking.volume import Volume
from paddock.interfaces.client.command import AsyncCommand
from paddock.interfaces.client.credentials import BindingInfo, CredentialInfo, SecretInfo, Spending
from paddock.interfaces.client.failures import CommandFailed
from paddock.interfaces.client.limits import QuotaInfo
from paddock.interfaces.client.quotas import AsyncQuotas
from paddock.interfaces.client.results import (
    AgentInfo,
    ApprovalInfo,
    CommandResult,
    Output,
    SandboxInfo,
    VolumeInfo,
)
from paddock.interfaces.client.sandbox import AsyncSandbox
from paddock.interfaces.client.secrets import AsyncSecrets
from paddock.interfaces.client.server import Server
from paddock.interfaces.client.spool import AsyncSpool
from paddock.interfaces.client.task import AsyncTask
from paddock.interfaces.client.task_results import TaskInfo, TaskSummary
from paddock.interfaces.client.volume import AsyncVolume

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
]
