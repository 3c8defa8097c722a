"""The guest's one error: a Connect code and a message, and the table from code to HTTP status."""

from __future__ import annotations

import errno

STATUS = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "resource_exhausted": 429,
    "canceled": 499,
    "internal": 500,
    "unknown": 500,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}

_BY_ERRNO = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "invalid_argument",
    errno.EISDIR: "invalid_argument",
    errno.ELOOP: "invalid_argument",
    errno.ENAMETOOLONG: "invalid_argument",
    errno.EINVAL: "invalid_argument",
    errno.EEXIST: "already_exists",
    errno.ENOTEMPTY: "failed_precondition",
    errno.EBUSY: "failed_precondition",
    errno.EXDEV: "failed_precondition",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.EROFS: "permission_denied",
    errno.ENOSPC: "resource_exhausted",
    errno.EDQUOT: "resource_exhausted",
    errno.EMFILE: "resource_exhausted",
    errno.ENFILE: "resource_exhausted",
    errno.EAGAIN: "resource_exhausted",
    errno.ENOMEM: "resource_exhausted",
}


class GuestError(Exception):
    """What a caller is told when a call does not succeed."""

    def __init__(self, code: str, message: str, exit_code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.exit_code = exit_code
        """What a shell would have ended with, for a program that could not be started."""

    @property
    def status(self) -> int:
        return STATUS[self.code]

    def as_dict(self) -> dict[str, object]:
        told: dict[str, object] = {"code": self.code, "message": self.message}
        return {**told, "exitCode": self.exit_code} if self.exit_code else told


def invalid(message: str) -> GuestError:
    return GuestError("invalid_argument", message)


def no_such_program(name: str) -> GuestError:
    return GuestError("invalid_argument", f"command not found: {name}", 127)


def no_program(message: str) -> GuestError:
    """There is such a file, but it cannot be executed."""
    return GuestError("invalid_argument", message, 126)


def from_os_error(error: OSError, what: str) -> GuestError:
    """The code that an operating system error has in the protocol."""
    code = _BY_ERRNO.get(error.errno or 0, "internal")
    return GuestError(code, f"{what}: {(error.strerror or str(error)).lower()}")


def from_path_error(error: OSError, path: bytes) -> GuestError:
    """The same for an error about a path that the caller named."""
    what = path.decode("utf-8", "surrogateescape")
    if error.errno == errno.ELOOP:
        return invalid(f"{what}: leads through a magic link of /proc, or in a circle")
    return from_os_error(error, what)
