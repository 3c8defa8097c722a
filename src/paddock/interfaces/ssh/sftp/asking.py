"""What every request of an SFTP client needs: the guest to ask, and our errors in its words."""

import os
import stat
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import asyncssh

from paddock.domain import errors
from paddock.domain.errors import PaddockError
from paddock.guest_client.posix import Attributes, PosixFiles
from paddock.services.ssh_access import Admitted
from paddock.services.ssh_visits import SshVisits

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Asking")
OWNER_WRITES = stat.S_IWUSR
_MODE_BITS = 0o7777
FAILURES: dict[type[PaddockError], Callable[[str], asyncssh.SFTPError]] = {
    errors.NotFound: asyncssh.SFTPNoSuchFile,
    errors.Forbidden: asyncssh.SFTPPermissionDenied,
    errors.Unauthenticated: asyncssh.SFTPPermissionDenied,
    errors.ApprovalRequired: asyncssh.SFTPPermissionDenied,
    errors.Unsupported: asyncssh.SFTPOpUnsupported,
    errors.Unavailable: asyncssh.SFTPConnectionLost,
    errors.InvalidRequest: asyncssh.SFTPFailure,
    errors.Conflict: asyncssh.SFTPFailure,
    errors.LimitExceeded: asyncssh.SFTPFailure,
    errors.QuotaExceeded: asyncssh.SFTPFailure,
    errors.TooLarge: asyncssh.SFTPFailure,
    errors.TimedOut: asyncssh.SFTPFailure,
    errors.Broken: asyncssh.SFTPFailure,
    errors.Refused: asyncssh.SFTPFailure,
}
"""What the version of the protocol that clients speak can say; the rest is in the message."""


class Asking(asyncssh.SFTPServer):
    """A client's transfers, on the sandbox it was let into."""

    def __init__(
        self, channel: "asyncssh.SSHServerChannel[bytes]", visits: SshVisits, admitted: Admitted
    ) -> None:
        super().__init__(channel)
        self.visits = visits
        self.admitted = admitted
        self.user = admitted.access.user

    async def ask(self, what: Callable[[PosixFiles], Awaitable[T]]) -> T:
        async with self.visits.enter(self.admitted) as entered:
            return await what(entered.guest.posix)

    async def attributes(self, path: str, *, follow: bool) -> asyncssh.SFTPAttrs:
        found = await self.ask(lambda posix: posix.stat(path, self.user, follow=follow))
        return shown(found)

    async def change(self, path: str, changes: dict[str, int]) -> None:
        if changes:
            await self.ask(lambda posix: posix.set(path, self.user, changes))

    async def space(self, path: str) -> os.statvfs_result:
        found = await self.ask(lambda posix: posix.space(path, self.user))
        names = ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail")
        counts = [found.get(name, 0) for name in (*names, "flag", "namemax", "fsid")]
        return os.statvfs_result(counts)


def told(
    method: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Our errors in SFTP's words."""

    @wraps(method)
    async def asked(self: S, /, *args: P.args, **more: P.kwargs) -> T:
        try:
            return await method(self, *args, **more)
        except PaddockError as error:
            raise failure(error) from error

    return asked


def failure(error: PaddockError) -> asyncssh.SFTPError:
    return FAILURES[type(error)](error.message)


def text(path: bytes) -> str:
    """As the guest takes paths: from the home on, and a tilde is a tilde."""
    name = path.decode("utf-8", "surrogateescape") or "."
    return f"./{name}" if name.startswith("~") else name


def raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def mode_of(attrs: asyncssh.SFTPAttrs) -> int | None:
    return None if attrs.permissions is None else attrs.permissions & _MODE_BITS


def changes_of(attrs: asyncssh.SFTPAttrs) -> dict[str, int]:
    """What a client wants to be different, by the guest's names."""
    given = {
        "size": attrs.size,
        "uid": attrs.uid,
        "gid": attrs.gid,
        "mode": mode_of(attrs),
        "atime": attrs.atime,
        "mtime": attrs.mtime,
    }
    return {name: int(value) for name, value in given.items() if value is not None}


def shown(found: Attributes) -> asyncssh.SFTPAttrs:
    return asyncssh.SFTPAttrs(
        type=_kind(found.mode),
        size=found.size,
        uid=found.uid,
        gid=found.gid,
        owner=found.owner,
        group=found.group,
        permissions=found.mode,
        atime=found.atime,
        mtime=found.mtime,
        nlink=found.links,
    )


def _kind(mode: int) -> int:
    if stat.S_ISDIR(mode):
        return asyncssh.FILEXFER_TYPE_DIRECTORY
    if stat.S_ISLNK(mode):
        return asyncssh.FILEXFER_TYPE_SYMLINK
    return asyncssh.FILEXFER_TYPE_REGULAR if stat.S_ISREG(mode) else asyncssh.FILEXFER_TYPE_SPECIAL
