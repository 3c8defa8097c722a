"""Judges an strace log: which files, programs and addresses a server used that it may not."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

TRACED = (
    "open,openat,openat2,creat,execve,execveat,connect,unlink,unlinkat,rename,renameat,renameat2,"
    "mkdir,mkdirat,rmdir,symlink,symlinkat,link,linkat,mknod,mknodat,truncate,chmod,fchmodat,chown,"
    "lchown,fchownat,setxattr,mount,umount2,pivot_root,chroot,setns,clone,clone3,fork,vfork"
)
OPTIONS = (
    "-f",
    "-y",
    "-s",
    "4096",
    "--pidns-translation",
    "--seccomp-bpf",
    "-e",
    f"trace={TRACED}",
)
"""How strace has to be called for `violations` to understand it."""

_LINE = re.compile(r"(\d+)\s+(.*)")
_CALL = re.compile(r"(\w+)\((.*)")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_UNFINISHED = " <unfinished ...>"
_RESULT = re.compile(r"\)\s+=\s+(-?\d+|\?)(?:<((?:[^>\\]|\\.)*)>)?([^=]*)$")
_OUTER = re.compile(r"/\* (\d+) in strace's PID NS \*/")
_STRING = re.compile(r'(?:(AT_FDCWD|\d+)(?:<((?:[^>\\]|\\.)*)>)?, )?"((?:[^"\\]|\\.)*)"')
_INET = re.compile(r'sin6?_port=htons\((\d+)\).*?"([0-9a-fA-F.:]+)"')
_UNIX = re.compile(r'sun_path=(@?)"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|[0-7]{1,3}|.)", re.S)
_OPENS = frozenset({"open", "openat", "openat2", "creat"})
_EXECUTES = frozenset({"execve", "execveat"})
_BIRTHS = frozenset({"clone", "clone3", "fork", "vfork"})
_WRITES = re.compile(r"\b(O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE)\b")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the server may do itself: prefixes of paths, and of addresses."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    """May be read as well."""
    execute: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    """Such as `unix:/run/`, `127.0.0.1:7070`."""
    canaries: tuple[str, ...] = ()
    """Nobody opens, runs or dials these, not even in vain, wherever it is."""


@dataclass(slots=True)
class _Process:
    inside: bool = False
    """It has a root of its own: a sandbox's, whose paths are not the host's."""


@dataclass(frozen=True, slots=True)
class _Call:
    pid: int
    name: str
    text: str
    """From the name to the result."""
    at: int


@dataclass(slots=True)
class _State:
    allowed: Allowed
    processes: dict[int, _Process] = field(default_factory=dict)
    found: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, kind: str, target: str, call: _Call) -> None:
        says = f"{kind} {target}: pid {call.pid}, line {call.at + 1}: {call.text[:200]}"
        self.found.setdefault((kind, target), says)


def violations(lines: Iterable[str], allowed: Allowed, since: int = 0) -> list[str]:
    """What of the log is not allowed, each once. Lines before `since` only tell who is whose child.

    A process that got another root or mount namespace is a sandbox's. Of what it does only
    canaries count: its paths are the sandbox's own.
    """
    calls = _calls(lines)
    births = _births(calls)
    state = _State(allowed)
    for call in calls:
        process = state.processes.setdefault(call.pid, _Process())
        if call.name in _BIRTHS and (child := births.get(call.at)) is not None:
            state.processes.setdefault(child, _Process(inside=process.inside))
        if call.name in ("pivot_root", "chroot") or _enters(call):
            process.inside = process.inside or _succeeded(call)
        elif call.at >= since:
            _judge(call, process, state)
    return list(state.found.values())


def _calls(lines: Iterable[str]) -> list[_Call]:
    """Every call as a whole, in the order in which they began."""
    calls: list[_Call] = []
    pending: dict[tuple[int, str], int] = {}
    for at, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            continue
        pid, text = int(found[1]), found[2].rstrip("\n")
        if (resumed := _RESUMED.match(text)) is not None:
            begun = pending.pop((pid, resumed[1]), None)
            if begun is not None:
                call = calls[begun]
                calls[begun] = _Call(pid, call.name, call.text + resumed[2], call.at)
            continue
        if (call_found := _CALL.match(text)) is None:
            continue
        name = call_found[1]
        if text.endswith(_UNFINISHED):
            pending[pid, name] = len(calls)
            text = text.removesuffix(_UNFINISHED)
        calls.append(_Call(pid, name, text, at))
    return calls


def _births(calls: Sequence[_Call]) -> dict[int, int]:
    """By the line of the call, the child that came of it, as strace counts processes."""
    found = {}
    for call in calls:
        result = _RESULT.search(call.text) if call.name in _BIRTHS else None
        if result is not None and result[1] not in ("?", "-1", "0"):
            outer = _OUTER.search(result[3])
            found[call.at] = int(outer[1] if outer else result[1])
    return found


def _enters(call: _Call) -> bool:
    return call.name == "setns" and ("CLONE_NEWNS" in call.text or "mnt" in call.text)


def _succeeded(call: _Call) -> bool:
    result = _RESULT.search(call.text)
    return result is None or not result[1].startswith("-")


def _judge(call: _Call, process: _Process, state: _State) -> None:
    allowed = state.allowed
    if call.name == "connect":
        _judge_connect(call, process, state)
        return
    for path in _paths(call):
        if path == "/":
            continue  # it holds nothing itself; a runtime that runs from a nameless mount shows it
        kind = _kind(call)
        if _is_below(path, allowed.canaries):
            state.note(f"{kind} canary", path, call)
        elif not process.inside and _succeeded(call) and not _may(kind, path, allowed):
            state.note(kind, path, call)


def _kind(call: _Call) -> str:
    if call.name in _EXECUTES:
        return "execute"
    if call.name in _OPENS and call.name != "creat" and not _WRITES.search(call.text):
        return "read"
    return "write"


def _may(kind: str, path: str, allowed: Allowed) -> bool:
    if kind == "execute":
        return _is_below(path, allowed.execute)
    return _is_below(path, allowed.write) or (kind == "read" and _is_below(path, allowed.read))


def _judge_connect(call: _Call, process: _Process, state: _State) -> None:
    target = ""
    if (inet := _INET.search(call.text)) is not None:
        target = f"{inet[2]}:{inet[1]}"
    elif (unix := _UNIX.search(call.text)) is not None:
        target = f"unix:{unix[1]}{_unescaped(unix[2])}"
    if not target:
        return  # netlink, or a socket that is disconnected
    if target in state.allowed.canaries:
        state.note("connect canary", target, call)
    elif not process.inside and not target.startswith(state.allowed.connect):
        state.note("connect", target, call)


def _paths(call: _Call) -> list[str]:
    """The real path that an open gave, as strace shows it; otherwise all that the call names."""
    named = []
    arguments = call.text.partition("[")[0] if call.name in _EXECUTES else call.text
    for _, directory, path in _STRING.findall(arguments):
        named.append(posixpath.normpath(posixpath.join(_unescaped(directory), _unescaped(path))))
    if call.name not in _OPENS:
        return [path for path in named if path.startswith("/")][: 1 if call.name == "mount" else 2]
    result = _RESULT.search(call.text)
    if result is not None and result[2]:
        named = [_unescaped(result[2]).removesuffix("(deleted)").rstrip()]
    return [path for path in named[:1] if path.startswith("/")]


def _is_below(path: str, prefixes: Sequence[str]) -> bool:
    """A prefix is a directory, a file, or what ends with `*`."""
    for each in prefixes:
        if each.endswith("*"):
            if path.startswith(each[:-1]):
                return True
        elif path == each or path.startswith(f"{each.rstrip('/')}/"):
            return True
    return False


def _unescaped(text: str) -> str:
    def read(found: re.Match[str]) -> str:
        code = found[1]
        if code.startswith("x"):
            return chr(int(code[1:], 16))
        return (
            chr(int(code, 8)) if code[0] in "01234567" else {"n": "\n", "t": "\t"}.get(code, code)
        )

    return _ESCAPE.sub(read, text)
