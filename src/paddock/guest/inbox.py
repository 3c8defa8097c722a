"""The inbox of a run: a maildir that the control plane fills and the run takes from."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import disk, fields, paths, removal, syscalls
from .connect import Call, Message, dump
from .errors import GuestError, invalid
from .removal import remove_now
from .state import GuestState
from .users import Account

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}\Z")
_LARGEST = 1 << 20
_MOST = 10_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


def path_of(state: GuestState, key: str) -> str:
    return f"{state.config.state_dir}/inboxes/{key}"


def make(state: GuestState, key: str, account: Account) -> None:
    """The user's own directory with tmp, new and cur, in one that only the guest may change."""
    disk.make_private(f"{state.config.state_dir}/inboxes", 0o711)
    base = path_of(state, key)
    # Not taken over if there is one: it may be a user's, with links where directories should be.
    with suppress(OSError):
        remove_now(_set_aside(base))
    inner = [f"{base}/{name}" for name in ("tmp", "new", "cur")]
    for path in (base, *inner):
        os.mkdir(path, 0o700)
    for path in (*inner, base):  # from the inside, so that the user owns nothing half made
        if os.geteuid() == 0:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


async def remove(state: GuestState, key: str) -> None:
    """Out of the way at once and then bit by bit, as the user may have put anything into it."""
    path = os.fsencode(_set_aside(path_of(state, key)))
    with suppress(OSError), paths.parent_of(path) as (directory, name):
        await removal.remove(directory, name)


def _set_aside(path: str) -> str:
    """Where it is now; in the same place still if a lower layer of the file system holds it."""
    directory, name = os.path.split(path)
    aside = f"{directory}/.{name}.{os.urandom(4).hex()}"
    try:
        os.rename(path, aside)
    except OSError:
        return path
    return aside


def remove_all(state: GuestState) -> None:
    remove_now(f"{state.config.state_dir}/inboxes")


class Messages:
    """What was put into the inboxes. The guest's own record is beside the run, not in the inbox."""

    def __init__(self, state: GuestState) -> None:
        self._state = state

    async def put(self, call: Call, message: Message) -> Message:
        run = self._state.runs.find(message)
        identifier = fields.text(message, "id")
        if not _ID.match(identifier):
            raise invalid(f"message id {identifier!r}: use up to 128 of A-Z a-z 0-9 . _ : @ -")
        if not run.terms.has_inbox:
            raise GuestError("failed_precondition", f"run {run.terms.key} has no inbox")
        body = _body(message)
        directory = f"{run.directory}/messages"
        disk.make_private(directory)
        known = disk.read_json(f"{directory}/{identifier}.json")
        if known is not None:
            return {"message": self._describe(run.terms.key, known)}
        if not run.is_running:
            raise GuestError("failed_precondition", f"run {run.terms.key} has ended")
        count = len(disk.names(directory))
        if count >= _MOST:
            raise GuestError("resource_exhausted", f"run {run.terms.key} has {count} messages")
        ttl = fields.number(message, "ttlMs", 0) / 1000
        now = time.time()
        record = {
            "id": identifier,
            "file": f"{count:08d}.{identifier}",
            "size": len(body),
            "putAt": now,
            "expiresAt": now + ttl if ttl else None,
        }
        self._place(run.terms.key, str(record["file"]), body, run.terms.user)
        disk.write_json(f"{directory}/{identifier}.json", record)
        if ttl:
            loop = asyncio.get_running_loop()
            loop.call_later(ttl, self._state_of, run.terms.key, record)
        return {"message": self._describe(run.terms.key, record)}

    async def list(self, call: Call, message: Message) -> Message:
        run = self._state.runs.find(message)
        directory = f"{run.directory}/messages"
        records = (disk.read_json(f"{directory}/{name}") for name in disk.names(directory))
        known = sorted(filter(None, records), key=lambda record: str(record["file"]))
        return {"messages": [self._describe(run.terms.key, record) for record in known]}

    def _describe(self, key: str, record: Message) -> Message:
        described = {name: record[name] for name in ("id", "file", "size", "putAt", "expiresAt")}
        described["state"] = self._state_of(key, record)
        return described

    def _state_of(self, key: str, record: Message) -> str:
        """Where it is says what it is: still in new, or taken. What is too old is taken back."""
        if record.get("expired"):
            return "expired"
        try:
            with _opened_new(self._state, key) as new:
                name = os.fsencode(record["file"])
                os.stat(name, dir_fd=new, follow_symlinks=False)
                if record["expiresAt"] is None or record["expiresAt"] > time.time():
                    return "new"
                os.unlink(name, dir_fd=new)
        except OSError:
            return "delivered"
        record["expired"] = True
        directory = f"{self._state.config.state_dir}/runs/{key}/messages"
        disk.write_json(f"{directory}/{record['id']}.json", record)
        return "expired"

    def _place(self, key: str, name: str, body: bytes, user: str) -> None:
        """Whole or not at all. The user owns the inbox, so nothing in it is taken for granted."""
        account = self._state.account(user)
        part = os.fsencode(f".{name}.part")
        runs = os.fsencode(f"{self._state.config.state_dir}/runs/{key}")
        source = os.open(runs, _DIRECTORY | os.O_CLOEXEC)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(part, flags, 0o600, dir_fd=source)
            with open(fd, "wb", buffering=0) as file:
                file.write(body)
                if os.geteuid() == 0:
                    os.fchown(fd, account.uid, account.gid)
            with _opened_new(self._state, key) as new:
                os.rename(part, os.fsencode(name), src_dir_fd=source, dst_dir_fd=new)
        except OSError as error:
            with suppress(OSError):
                os.unlink(part, dir_fd=source)
            raise GuestError(
                "failed_precondition", f"the inbox of run {key} is gone: {error}"
            ) from None
        finally:
            os.close(source)


@contextmanager
def _opened_new(state: GuestState, key: str) -> Iterator[int]:
    """An inbox's `new`, reached through no link below what belongs to the guest."""
    base = os.open(f"{state.config.state_dir}/inboxes", _DIRECTORY | os.O_CLOEXEC)
    try:
        fd = syscalls.open_without_magic(
            os.fsencode(f"{key}/new"),
            _DIRECTORY,
            dir_fd=base,
            resolve=syscalls.RESOLVE_NO_SYMLINKS,
        )
    finally:
        os.close(base)
    try:
        yield fd
    finally:
        os.close(fd)


def _body(message: Message) -> bytes:
    """Bytes as base64 in `body`, or any JSON value in `json`."""
    if ("body" in message) == ("json" in message):
        raise invalid("give one of body (base64) and json")
    body = dump(message["json"]) if "json" in message else fields.binary(message, "body")
    if len(body) > _LARGEST:
        raise GuestError(
            "resource_exhausted", f"{len(body)} bytes; a message has at most {_LARGEST}"
        )
    return body
