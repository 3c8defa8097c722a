"""Who is who in the sandbox: its own /etc/passwd and /etc/group, read without NSS."""

from __future__ import annotations

import os
from dataclasses import dataclass

_FALLBACK_SHELL = "/bin/sh"


@dataclass(frozen=True)
class Account:
    """One user of the sandbox."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: tuple[int, ...]
    """All groups, the primary one included, in the form setgroups takes."""
    as_root: bool = False
    """File calls act as root and give what they make to this account."""


ROOT = Account("root", 0, 0, "/root", _FALLBACK_SHELL, (0,))


class Accounts:
    """The sandbox's users and groups, read again whenever one of the two files has changed."""

    def __init__(self, directory: str = "/etc") -> None:
        self._passwd = f"{directory}/passwd"
        self._group = f"{directory}/group"
        self._seen: object = None
        self._users: dict[str, Account] = {}
        self._names: dict[int, str] = {}
        self._group_names: dict[int, str] = {}

    def find(self, name: str) -> Account | None:
        """By name; a bare number is taken for a uid, with or without an entry."""
        self.refresh()
        account = self._users.get(name)
        if account is None and name.isascii() and name.isdigit():
            uid = int(name)
            known = self._names.get(uid)
            if known is not None:
                return self._users[known]
            if uid < 2**32 - 1:
                return Account(name, uid, uid, "/", _FALLBACK_SHELL, (uid,))
        return account

    def user_name(self, uid: int) -> str:
        """As of the last find() or refresh(): a user's own rights may not be enough to read it."""
        return self._names.get(uid, str(uid))

    def group_name(self, gid: int) -> str:
        return self._group_names.get(gid, str(gid))

    def refresh(self) -> None:
        seen = (_identity(self._passwd), _identity(self._group))
        if seen == self._seen:
            return
        self._seen = seen
        members: dict[str, list[int]] = {}
        self._group_names = {}
        for fields in _rows(self._group, 4):
            gid = _number(fields[2])
            if gid is None:
                continue
            self._group_names.setdefault(gid, fields[0])
            for member in filter(None, fields[3].split(",")):
                members.setdefault(member, []).append(gid)
        self._users, self._names = {"root": ROOT}, {0: "root"}
        for row in _rows(self._passwd, 7):
            self._add(row, members)

    def _add(self, row: list[str], members: dict[str, list[int]]) -> None:
        name, _, uid_text, gid_text, _, home, shell = row[:7]
        uid, gid = _number(uid_text), _number(gid_text)
        if not name or uid is None or gid is None:
            return
        groups = (gid, *(g for g in members.get(name, ()) if g != gid))
        account = Account(name, uid, gid, home or "/", shell or _FALLBACK_SHELL, groups)
        self._users[name] = account
        self._names.setdefault(uid, name)


def _identity(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _rows(path: str, width: int) -> list[list[str]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may have become a pipe
    except OSError:
        return []
    with open(fd, "rb", buffering=0) as file:
        text = (file.read(4 << 20) or b"").decode("utf-8", "surrogateescape")
    split = (line.split(":") for line in text.split("\n") if line and not line.startswith("#"))
    return [fields for fields in split if len(fields) >= width]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) < 2**32 - 1 else None
