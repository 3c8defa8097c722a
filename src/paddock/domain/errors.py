"""The one error tree. Nothing in it knows HTTP; each interface maps it with one table.

PaddockError
├── InvalidRequest      what was asked for can never work as asked
├── NotFound            no such thing, or not yours
├── Conflict            not in this state; the thing exists and says otherwise
├── Unauthenticated
├── Forbidden
├── ApprovalRequired    allowed once somebody has approved it
├── LimitExceeded       a rate, or more than there can ever be
│   └── QuotaExceeded   of what there can be all is taken; there is room again when some of it goes
├── TooLarge            more than is taken or given in one piece; another way has no such limit
├── Unsupported         the provider said beforehand that it cannot
├── TimedOut
└── ProviderError       the fault lies with where the sandbox runs
    ├── Unavailable     may work when tried again
    ├── Refused         the provider understood and said no
    └── Broken          the provider answered with something impossible
"""

from typing import ClassVar

_NOT_STARTED = (126, 127)
"""What a shell ends with for a program that cannot be executed, and for one that is not there."""


class PaddockError(Exception):
    """Anything Paddock tells a caller, with what to do about it."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, remediation: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remediation = remediation
        self.retry_after_s = retry_after_s
        """When it may be worth trying again, where that is known."""
        self.request_id = ""
        """Of the request that a server answered with this; its log has more under this id."""
        self.exit_code: int | None = None
        """What a shell would have ended with, for a command whose program could not be started."""

    @property
    def passes(self) -> bool:
        """The same may be done later, without anything else: by itself, or when its time is up."""
        return self.retryable or self.retry_after_s is not None

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.remediation}" if self.remediation else self.message

    def as_dict(self) -> dict[str, object]:
        told: dict[str, object] = {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
            "remediation": self.remediation,
        }
        return told if self.exit_code is None else {**told, "exit_code": self.exit_code}


class InvalidRequest(PaddockError):
    """What was asked for can never work as asked."""

    code = "invalid_request"


class NotFound(PaddockError):
    """There is no such thing, or it belongs to someone else."""

    code = "not_found"


class Conflict(PaddockError):
    """The thing exists, but not in a state that allows this."""

    code = "conflict"


class Unauthenticated(PaddockError):
    """Nobody we know."""

    code = "unauthenticated"


class Forbidden(PaddockError):
    """Known, but not allowed."""

    code = "forbidden"


class ApprovalRequired(PaddockError):
    """A policy wants somebody to approve this first."""

    code = "approval_required"


class LimitExceeded(PaddockError):
    """A rate was exceeded, or a limit that what was asked for can never keep."""

    code = "limit_exceeded"


class QuotaExceeded(LimitExceeded):
    """All that there is of something is taken; there is room again when others leave."""

    code = "quota_exceeded"
    retryable = True


class TooLarge(PaddockError):
    """More than is taken or given in one piece; asking again does not help."""

    code = "too_large"


class Unsupported(PaddockError):
    """The provider's capabilities say that it cannot do this."""

    code = "unsupported"


class TimedOut(PaddockError):
    """A deadline passed before the work was done."""

    code = "timed_out"
    retryable = True


class ProviderError(PaddockError):
    """The place where the sandbox runs is at fault, not the request and not the command."""

    code = "provider_error"


class Unavailable(ProviderError):
    """The provider cannot be reached or is overloaded; trying again may help."""

    code = "provider_unavailable"
    retryable = True


class Refused(ProviderError):
    """The provider understood the request and refused it."""

    code = "provider_refused"


class Broken(ProviderError):
    """The provider did something that its contract excludes."""

    code = "provider_broken"


def known(error: Exception) -> PaddockError:
    """The error itself, or Broken for one that nobody foresaw: an end always has a reason."""
    if isinstance(error, PaddockError):
        return error
    return Broken(
        f"an unexpected error ({type(error).__name__})",
        remediation="read the server's log, and report it",
    )


_GROUPS = (PaddockError, ProviderError)
"""What others are kinds of, and nothing is only."""


def not_started(code: object) -> int | None:
    """What somebody else said is an error's exit code, if it can be one."""
    return code if isinstance(code, int) and code in _NOT_STARTED else None


def leaves(root: type[PaddockError] = PaddockError) -> list[type[PaddockError]]:
    """Every error that is raised as such: what an interface's table must cover."""
    own = [] if root in _GROUPS else [root]
    return own + [leaf for child in root.__subclasses__() for leaf in leaves(child)]
