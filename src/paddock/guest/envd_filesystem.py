"""filesystem.Filesystem of envd: look, make, move, remove, list, watch."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Awaitable
from typing import Callable

from . import connect, entries, fields, paths, removal
from .connect import Call, Message
from .environment import decode
from .errors import GuestError, from_path_error, invalid
from .process import Process
from .state import GuestState

_DEEPEST = 1000


class FilesystemService:
    """The calls that answer at once; watching is in `watch`."""

    def __init__(self, state: GuestState) -> None:
        self._state = state

    async def stat(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        try:
            return {"entry": entries.describe(self._state.accounts, path)}
        except OSError as error:
            raise from_path_error(error, path) from None

    async def make_dir(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        account = call.account
        try:
            paths.make_parents(path, account)
            with paths.parent_of(path) as (directory, name):
                try:
                    os.close(paths.make_directory(directory, name, account))
                except FileExistsError:
                    raise _already_there(directory, name, path) from None
            return {"entry": entries.describe(self._state.accounts, path)}
        except OSError as error:
            raise from_path_error(error, path) from None

    async def move(self, call: Call, message: Message) -> Message:
        source, target = _path(call, message, "source"), _path(call, message, "destination")
        try:
            with paths.parent_of(source) as (source_dir, source_name):
                os.stat(source_name, dir_fd=source_dir, follow_symlinks=False)
                paths.make_parents(target, call.account)
                with paths.parent_of(target) as (target_dir, target_name):
                    os.rename(
                        source_name, target_name, src_dir_fd=source_dir, dst_dir_fd=target_dir
                    )
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise from_path_error(error, source) from None
            await self._move_across(source, target)
        return {"entry": entries.describe(self._state.accounts, target)}

    async def remove(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        try:
            with paths.parent_of(path) as (directory, name):
                if name == b".":
                    raise invalid("the root directory cannot be removed")
                await removal.remove(directory, name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise from_path_error(error, path) from None
        return {}

    async def list_dir(self, call: Call, message: Message) -> Message:
        path = _path(call, message, "path")
        depth = fields.number(message, "depth", 1, _DEEPEST) or 1
        try:
            with paths.opened(path, os.O_RDONLY | os.O_DIRECTORY) as directory:
                walk = entries.walk(
                    self._state.accounts, directory, path.rstrip(b"/") or b"/", depth
                )
                return {"entries": [entry async for entry in walk]}
        except OSError as error:
            raise from_path_error(error, path) from None

    async def _move_across(self, source: bytes, target: bytes) -> None:
        """Between file systems, and for a directory of an overlay's lower layer: the image's mv."""
        root = self._state.account("root")
        argv = ["mv", "-f", "-T", "--", decode(source), decode(target)]
        said: list[bytes] = []
        command = self._state.command(argv, account=root, env={}, cwd="/")
        ending = await Process(self._state, command, lambda _, data: said.append(data)).done
        if ending.exit_code != 0:
            reason = b"".join(said).decode("utf-8", "replace").strip()
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


def _path(call: Call, message: Message, name: str) -> bytes:
    return call.state.absolute(fields.text(message, name), call.account)


def _already_there(directory: int, name: bytes, path: bytes) -> GuestError:
    try:
        mode = os.stat(name, dir_fd=directory).st_mode
    except OSError:
        mode = 0
    if stat.S_ISDIR(mode):
        return GuestError("already_exists", f"{decode(path)}: the directory exists already")
    return invalid(f"{decode(path)}: a file is there already")
