"""Acting on files as an account may, and no more, though the guest is root.

A path that a caller names leads where the sandbox's own programs let it lead: a link planted in the
user's home must not be a way to root's files. So whatever opens, makes, moves or removes on behalf
of an account does it with that account's rights, and what is made is the account's by nature.

E2B's envd acts as root and then changes the owner. For its clients, an account's rights are tried
first; where they do not suffice, root acts for the account, and follows root's links only.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Callable, TypeVar

from . import paths, syscalls
from .errors import GuestError
from .users import Account

_UNCHANGED = -1
_ID = 0xFFFFFFFF
T = TypeVar("T")


def attempt(accounts: Sequence[Account], act: Callable[[Account], T]) -> T:
    """Do it with the rights of the first account that may. `act` must be safe to repeat."""
    for account in accounts[:-1]:
        try:
            with of(account):
                return act(account)
        except PermissionError:
            continue
        except GuestError as error:
            if error.code != "permission_denied":
                raise
    with of(accounts[-1]):
        return act(accounts[-1])


@contextmanager
def of(account: Account | None) -> Iterator[None]:
    """Inside, files are the account's to use as it may; GuestError if it cannot be become.

    None is the guest itself. It is the thread that has the rights, so there must be no `await`
    inside; and nothing that uses this again.
    """
    own = os.geteuid()
    if account is None or account.uid == own:
        yield
        return
    if account.as_root and own == 0:
        with paths.acting_for(account):
            yield
        return
    if own != 0:
        raise GuestError(
            "permission_denied",
            f"this guest runs as uid {own} and cannot use files as {account.name}",
        )
    drop = _take(account.uid, account.gid, account.groups)
    try:
        yield
    finally:
        drop()


@contextmanager
def of_ids(uid: int, gid: int) -> Iterator[None]:
    """The same by numbers; OSError if they cannot be become."""
    own = os.geteuid()
    if uid == own:
        yield
        return
    if own != 0:
        raise PermissionError(errno.EPERM, f"uid {own} cannot become uid {uid}")
    drop = _take(uid, gid, ())
    try:
        yield
    finally:
        drop()


def _take(uid: int, gid: int, groups: Sequence[int]) -> Callable[[], None]:
    """What gives the rights back."""
    take, drop = _FOR_FILES if syscalls.has_setfsuid() else _IN_EFFECT
    try:
        _set_groups(groups)
        take(uid, gid)
    except BaseException:
        drop()
        raise
    return drop


def _take_for_files(uid: int, gid: int) -> None:
    """By the ids that only files know: nobody can signal, trace or slow down the guest by them."""
    syscalls.call("setfsgid", gid)
    before = syscalls.call("setfsuid", uid)
    if before != 0:
        raise RuntimeError(f"the rights of uid {before} are in use already")
    _check_ids_for_files(uid, gid)
    _forbid_inspection()


def _drop_for_files() -> None:
    syscalls.call("setfsuid", 0)
    syscalls.call("setfsgid", os.getegid())
    _forbid_inspection()


@lru_cache(maxsize=64)  # what could be become once can be become again
def _check_ids_for_files(uid: int, gid: int) -> None:
    """Neither call says whether it worked, only what was before."""
    now = syscalls.call("setfsgid", _UNCHANGED), syscalls.call("setfsuid", _UNCHANGED)
    if (now[0] & _ID, now[1] & _ID) != (gid, uid):
        raise PermissionError(errno.EPERM, f"the guest cannot become uid {uid} and gid {gid}")


def _take_in_effect(uid: int, gid: int) -> None:
    """For gVisor, which knows no ids for files alone. Signals go by the real and the saved ones."""
    syscalls.checked_call("setresgid", _UNCHANGED, gid, _UNCHANGED)
    syscalls.checked_call("setresuid", _UNCHANGED, uid, _UNCHANGED)
    _forbid_inspection()


def _drop_in_effect() -> None:
    syscalls.checked_call("setresuid", _UNCHANGED, 0, _UNCHANGED)
    syscalls.checked_call("setresgid", _UNCHANGED, os.getgid(), _UNCHANGED)
    _forbid_inspection()


def _set_groups(groups: Sequence[int]) -> None:
    """Left as they are afterwards: to root they mean nothing."""
    if set(os.getgroups()) != set(groups):
        syscalls.checked_call("setgroups", len(groups), (ctypes.c_uint32 * len(groups))(*groups))


def _forbid_inspection() -> None:
    """A change of ids undoes it, but only here in a way that matters."""
    if syscalls.changed_ids_allow_inspection():
        syscalls.forbid_inspection()


_FOR_FILES = (_take_for_files, _drop_for_files)
_IN_EFFECT = (_take_in_effect, _drop_in_effect)
