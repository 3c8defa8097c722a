"""What is said between the control plane and the guest inside a sandbox."""

from dataclasses import dataclass, field

from paddock.domain.reason import Reason


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """How the guest is reached: a unix socket on this host, or a URL with headers."""

    socket: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. A non-zero exit code is a result, not an error."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    reason: Reason = Reason.EXITED
    truncated: bool = False
    """True when output beyond the caller's cap was left out."""

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")
