"""What a client can find out about files."""

import os
import posixpath
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from stat import S_ISLNK, filemode

import asyncssh

from paddock.domain.errors import PaddockError, Unsupported
from paddock.guest_client.posix import Named
from paddock.interfaces.ssh.sftp.asking import Asking, changes_of, failure, raw, shown, text, told

_HALF_A_YEAR_S = 183 * 86400


class Looking(Asking):
    """The requests about a path; those that set attributes are among them."""

    @told
    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return await self.attributes(text(path), follow=False)

    @told
    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return await self.attributes(text(path), follow=True)

    @told
    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        await self.change(text(path), changes_of(attrs))

    @told
    async def lsetstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        name = text(path)
        found = await self.ask(lambda posix: posix.stat(name, self.user, follow=False))
        if S_ISLNK(found.mode):
            raise Unsupported("the attributes of a symbolic link cannot be set")
        await self.change(name, changes_of(attrs))

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        """As it comes from the guest: a directory may hold more than fits in memory."""
        try:
            async with aclosing(self._scan(text(path))) as found:
                async for each in found:
                    yield _named(each)
        except PaddockError as error:
            raise failure(error) from error

    @told
    async def realpath(self, path: bytes) -> bytes:
        name = text(path)
        return raw(await self.ask(lambda posix: posix.real_path(name, self.user)))

    @told
    async def readlink(self, path: bytes) -> bytes:
        name = text(path)
        return raw(await self.ask(lambda posix: posix.read_link(name, self.user)))

    @told
    async def statvfs(self, path: bytes) -> os.statvfs_result:
        return await self.space(text(path))

    async def _scan(self, name: str) -> AsyncGenerator[Named, None]:
        async with self.visits.enter(self.admitted) as entered:
            posix = entered.guest.posix
            for own in (".", ".."):
                yield Named(own, await posix.stat(posixpath.join(name, own), self.user))
            found = posix.scan(name, self.user)
            assert isinstance(found, AsyncGenerator)
            async with aclosing(found):
                async for each in found:
                    yield each


def _named(found: Named) -> asyncssh.SFTPName:
    return asyncssh.SFTPName(raw(found.name), longname(found), shown(found.attributes))


def longname(found: Named) -> bytes:
    """A line as of `ls -l`; the names of users are the sandbox's."""
    known = found.attributes
    moment = time.gmtime(known.mtime)
    is_recent = abs(time.time() - known.mtime) < _HALF_A_YEAR_S
    when = time.strftime("%b %e %H:%M" if is_recent else "%b %e  %Y", moment)
    line = (
        f"{filemode(known.mode)} {known.links:>4} {known.owner:8} {known.group:8} "
        f"{known.size:>8} {when} "
    )
    return raw(line) + raw(found.name)
