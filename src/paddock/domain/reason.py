"""Why something ended: data, never a guess from a message."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a sandbox, a run or a task stopped."""

    EXITED = "exited"
    """It ended by itself; the exit code says the rest."""
    USER = "user"
    CANCELLED = "cancelled"
    IDLE = "idle"
    DEADLINE = "deadline"
    BUDGET = "budget"
    OOM = "oom"
    DISK_FULL = "disk_full"
    CRASHED = "crashed"
    EVICTED = "evicted"
    PROVIDER_LOST = "provider_lost"
    """The machine under it went away: a host restart, a vendor's outage."""
