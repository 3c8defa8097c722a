"""filesystem.Filesystem of envd: look, make, move, remove, list, watch."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Awaitable
from contextlib import suppress
from typing import Callable

from . import connect, entries, fields, paths, removal, rights
from .connect import Call, Message
from .environment import SYSTEM_PATH, decode, encode
from .errors import GuestError, from_path_error, invalid
from .process import Process
from .state import GuestState
from .users import Account

_DEEPEST = 1000
_LARGEST_PAGE = 100_000


class FilesystemService:
    """The calls that answer at once; watching is in `watch`."""

    def __init__(self, state: GuestState) -> None:
        self._state = state

    async def stat(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        try:
            return rights.attempt(_accounts(call), lambda _: self._describe(path))
        except OSError as error:
            raise from_path_error(error, path) from None

    async def make_dir(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        try:
            rights.attempt(_accounts(call), lambda _: _make_dir(path))
            return rights.attempt(_accounts(call), lambda _: self._describe(path))
        except OSError as error:
            raise from_path_error(error, path) from None

    async def move(self, call: Call, message: Message) -> Message:
        source, target = _path(call, message, "source"), _path(call, message, "destination")
        try:
            rights.attempt(_accounts(call), lambda _: _rename(source, target))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise from_path_error(error, source) from None
            await self._move_across(source, target, call.account, call.timeout)
        return rights.attempt(_accounts(call), lambda _: self._describe(target))

    async def remove(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        accounts = _accounts(call)
        try:
            for account in accounts[:-1]:
                with suppress(PermissionError):
                    return await _remove(path, account)
            return await _remove(path, accounts[-1])
        except FileNotFoundError:
            pass
        except OSError as error:
            raise from_path_error(error, path) from None
        return {}

    async def list_dir(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        walk = _walk(message)
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            account, directory = rights.attempt(
                _accounts(call), lambda account: (account, paths.open_path(path, flags))
            )
            try:
                path = path.rstrip(b"/") or b"/"
                accounts = self._state.accounts
                found, more = await entries.list_below(
                    accounts, account, directory, path, walk=walk
                )
                return {"entries": found, **({"next": _below(found, path)} if more else {})}
            finally:
                os.close(directory)
        except OSError as error:
            raise from_path_error(error, path) from None

    def _describe(self, path: bytes) -> Message:
        return {"entry": entries.describe(self._state.accounts, path)}

    async def _move_across(
        self, source: bytes, target: bytes, account: Account, timeout: float | None
    ) -> None:
        """Between file systems, and for a directory of an overlay's lower layer: the image's mv."""
        argv = ["mv", "-f", "-T", "--", decode(source), decode(target)]
        said: list[bytes] = []
        env = {"PATH": SYSTEM_PATH}  # and not a program of that name that the user has put first
        command = self._state.command(argv, account=account, env=env, cwd="/")
        process = Process(self._state, command, lambda _, data: said.append(data), timeout)
        ending = await process.done
        if ending.exit_code != 0:
            reason = b"".join(said).decode("utf-8", "replace").strip() or ending.reason
            raise GuestError("failed_precondition", f"cannot move {decode(source)}: {reason}")


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    service = FilesystemService(state)
    table = {
        "Stat": connect.unary(service.stat),
        "MakeDir": connect.unary(service.make_dir),
        "Move": connect.unary(service.move),
        "Remove": connect.unary(service.remove),
        "ListDir": connect.unary(service.list_dir),
    }
    return {f"POST /filesystem.Filesystem/{name}": method for name, method in table.items()}


async def _remove(path: bytes, account: Account) -> Message:
    """The way there has the same rights as the removal: a link may be part of it."""
    with rights.of(account):
        directory, name = paths.open_parent(path)
    try:
        if name == b".":
            raise invalid("the root directory cannot be removed")
        await removal.remove(directory, name, account)
    finally:
        os.close(directory)
    return {}


def _make_dir(path: bytes) -> None:
    paths.make_parents(path)
    with paths.parent_of(path) as (directory, name):
        try:
            os.close(paths.make_directory(directory, name))
        except FileExistsError:
            raise _already_there(directory, name, path) from None


def _rename(source: bytes, target: bytes) -> None:
    with paths.parent_of(source) as (source_dir, source_name):
        os.stat(source_name, dir_fd=source_dir, follow_symlinks=False)
        try:
            paths.make_parents(target)
            target_dir, target_name = paths.open_parent(target)
        except OSError as error:
            raise from_path_error(error, target) from None
        try:
            os.rename(source_name, target_name, src_dir_fd=source_dir, dst_dir_fd=target_dir)
        finally:
            os.close(target_dir)


def _walk(message: Message) -> entries.Walk:
    """envd knows the depth only; pages and names that are not entered are ours."""
    return entries.Walk(
        depth=fields.number(message, "depth", 1, _DEEPEST) or 1,
        closed=tuple(encode(name) for name in fields.words(message, "closed")),
        after=encode(fields.text(message, "after", "")),
        limit=fields.number(message, "limit", 0, _LARGEST_PAGE),
    )


def _below(found: list[Message], path: bytes) -> str:
    """Of the last entry, what comes after the directory: there the next page begins."""
    last: str = found[-1]["path"]
    return last[len(decode(path).rstrip("/")) + 1 :]


def _path(call: Call, message: Message, name: str) -> bytes:
    return call.state.absolute(fields.text(message, name), call.account)


def _accounts(call: Call) -> tuple[Account, ...]:
    return call.file_accounts(call.account)


def _already_there(directory: int, name: bytes, path: bytes) -> GuestError:
    try:
        mode = os.stat(name, dir_fd=directory).st_mode
    except OSError:
        mode = 0
    if stat.S_ISDIR(mode):
        return GuestError("already_exists", f"{decode(path)}: the directory exists already")
    return invalid(f"{decode(path)}: a file is there already")
