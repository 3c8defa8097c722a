"""What a sandbox uses and where its programs listen."""

from dataclasses import dataclass

from paddock.guest_client import answers
from paddock.guest_client.answers import Message


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port that a program in the sandbox listens on."""

    port: int
    address: str
    pid: int | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class GuestUsage:
    """What the guest sees; None where it cannot see it."""

    cpu_seconds: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    pids: int
    disk_used_bytes: int
    disk_total_bytes: int
    running_runs: int
    commands: int
    streams: int
    last_activity_at: float
    default_user: str
    default_user_missing: bool
    """The image has no such user, so commands run as root."""


def parse_port(message: Message) -> Port:
    return Port(
        port=answers.whole(message, "port"),
        address=answers.text(message, "address"),
        pid=answers.whole(message, "pid") if "pid" in message else None,
        command=answers.text(message, "command", ""),
    )


def parse_usage(message: Message) -> GuestUsage:
    def maybe(name: str) -> int | None:
        return answers.whole(message, name) if name in message else None

    cpu = answers.number(message, "cpuSeconds") if "cpuSeconds" in message else None
    return GuestUsage(
        cpu_seconds=cpu,
        memory_bytes=maybe("memoryBytes"),
        memory_limit_bytes=maybe("memoryLimitBytes"),
        pids=answers.whole(message, "pids"),
        disk_used_bytes=answers.whole(message, "diskUsedBytes"),
        disk_total_bytes=answers.whole(message, "diskTotalBytes"),
        running_runs=answers.whole(message, "runningRuns"),
        commands=answers.whole(message, "commands"),
        streams=answers.whole(message, "streams"),
        last_activity_at=answers.number(message, "lastActivityAt"),
        default_user=answers.text(message, "defaultUser"),
        default_user_missing=answers.flag(message, "defaultUserMissing"),
    )
