"""What a command would run, taken apart as far as that can be known without running it."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Word = str | None
"""None is known only when it runs, and may be any number of words then."""
Words = tuple[Word, ...]

IN_SHELL = 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"'
"""How the SDK runs a command that is text: in bash where there is one. Not in a login shell, whose
/etc/profile would replace the PATH that image, template and caller have set."""
WRAPPED = ("/bin/sh", "-c", IN_SHELL, "sh")
TURNING = frozenset(
    {"PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"}
)
"""Variables that change which program a name stands for, or what it runs first; and LD_*."""

_SHELLS = frozenset("sh bash dash ash ksh mksh zsh fish csh tcsh rbash".split())
_SHELL_PATHS = frozenset(
    f"{place}{name}" for place in ("", "/bin/", "/usr/bin/") for name in ("sh", "bash")
)
_OPAQUE = frozenset(
    "eval source . trap alias coproc builtin enable hash let busybox toybox parallel watch su "
    "runuser script strace ltrace gdb chroot unshare nsenter setpriv flock at batch".split()
)
"""Their arguments are commands in a form that is not taken apart here."""
_NAMES_VARIABLES = frozenset(
    "read unset declare typeset local readonly export mapfile readarray getopts".split()
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_DEEPEST = 20


class Unreadable(Exception):
    """Nobody can say beforehand what this would run; its text says why."""


@dataclass(frozen=True, slots=True)
class Script:
    """Every command that a script may run, in any of its branches, functions and substitutions."""

    commands: tuple[Words, ...]
    assigned: frozenset[str] = frozenset()
    """Variables that it sets."""


Read = Callable[[str], Script]
"""Takes a shell script apart, or raises Unreadable."""


@dataclass(frozen=True, slots=True)
class Step:
    """One program that would be run."""

    words: Words
    unknown: str = ""
    """Why it cannot be told what this comes to; empty when it can."""
    carries: bool = False
    """A shell that only carries a script, whose commands are steps of their own."""
    turned: bool = False
    """A name may stand for another program than usual."""


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program that runs the command in its arguments: what may come before that."""

    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    positional: int = 0
    assigns: bool = False
    appends: bool = False
    """It adds arguments of its own."""


def _wrapper(flags: str = "", valued: str = "", **more: int | bool) -> _Wrapper:
    return _Wrapper(frozenset(flags.split()), frozenset(valued.split()), **more)  # type: ignore[arg-type]


_WRAPPERS = {
    "env": _wrapper("-i - --ignore-environment", "-u --unset -C --chdir", assigns=True),
    "nohup": _wrapper(),
    "setsid": _wrapper("-c -f -w --ctty --fork --wait"),
    "exec": _wrapper("-c -l", "-a"),
    "command": _wrapper("-p"),
    "nice": _wrapper("", "-n --adjustment"),
    "time": _wrapper("-p"),
    "timeout": _wrapper(
        "--foreground --preserve-status -v --verbose", "-s --signal -k --kill-after", positional=1
    ),
    "stdbuf": _wrapper("", "-i -o -e --input --output --error"),
    "sudo": _wrapper("-n -E -H -S -b -k", "-u -g --user --group", assigns=True),
    "doas": _wrapper("-n", "-u"),
    "xargs": _wrapper(
        "-0 -r -t -x --null --no-run-if-empty",
        "-n -P -L -d -s -E -a -I --max-args --max-procs --delimiter --arg-file",
        appends=True,
    ),
}


def steps(words: Sequence[Word], read: Read, *, turned: bool = False) -> Iterator[Step]:
    """Everything that these words would run, the words themselves first."""
    yield from _steps(tuple(words), read, turned, 0)


def turns(names: Sequence[str] | frozenset[str]) -> bool:
    """Whether setting these variables may change which program a name stands for."""
    return any(name in TURNING or name.startswith("LD_") for name in names)


def _steps(words: Words, read: Read, turned: bool, depth: int) -> Iterator[Step]:
    program = words[0] if words else None
    if program is None:
        yield Step(words, "which program it is shows only when it runs", turned=turned)
        return
    if depth > _DEEPEST:
        yield Step(words, "commands are nested too deeply", turned=turned)
        return
    name = program.rpartition("/")[2]
    if name in _SHELLS:
        yield from _of_shell(words, read, turned, depth)
    elif why := _opaque(name, words):
        yield Step(words, why, turned=turned)
    elif (wrapper := _WRAPPERS.get(name)) is not None:
        yield from _of_wrapper(words, wrapper, read, turned=turned, depth=depth)
    else:
        yield Step(words, turned=turned)


def _of_shell(words: Words, read: Read, turned: bool, depth: int) -> Iterator[Step]:
    script = _script(words)
    if script is None:
        why = "a shell is judged only as `sh -c SCRIPT`, `bash -c SCRIPT` or with -lc"
        yield Step(words, why, turned=turned)
        return
    yield Step(words, carries=True, turned=turned)
    try:
        found = read(script)
    except Unreadable as error:
        yield Step(words, str(error), turned=turned)
        return
    turned = turned or turns(found.assigned)
    for command in found.commands:
        yield from _steps(command, read, turned, depth + 1)


def _script(words: Words) -> str | None:
    """The text of a shell in its one form; None for any other."""
    if len(words) == 5 and words[:4] == WRAPPED:
        return words[4]
    if len(words) == 3 and words[0] in _SHELL_PATHS and words[1] in ("-c", "-lc"):
        return words[2]
    return None


def _opaque(name: str, words: Words) -> str:
    if name in _OPAQUE:
        return f"what {name} runs is not taken apart"
    if name == "find" and any(w is None or w.startswith(("-exec", "-ok")) for w in words[1:]):
        return "what find runs is not taken apart"
    if name == "test" and {"-v", "-R"} & set(words):
        return "test -v runs what is in a variable's index"
    if name == "printf" and words[1:2] in (("-v",), (None,)):
        return "printf -v runs what is in a variable's index"
    # bash evaluates the index of a variable's name, and what is in `$(…)` there with it.
    if name in _NAMES_VARIABLES and any(w is None or "[" in w for w in words[1:]):
        return f"{name} may run what is in a variable's index"
    return ""


def _of_wrapper(
    words: Words, wrapper: _Wrapper, read: Read, *, turned: bool, depth: int
) -> Iterator[Step]:
    if words[0] == "command" and words[1:2] in (("-v",), ("-V",)):
        yield Step(words, turned=turned)  # it only asks
        return
    try:
        inner, assigned, replaces = _inner(words[1:], wrapper)
    except Unreadable as error:
        yield Step(words, f"{words[0]} is given {error}", turned=turned)
        return
    yield Step(words, turned=turned)
    if not inner:
        return
    if wrapper.appends:
        inner = (*inner[:1], *(None for _ in inner[1:])) if replaces else inner
        inner = (*inner, None)
    yield from _steps(inner, read, turned or turns(assigned), depth + 1)


def _inner(words: Words, wrapper: _Wrapper) -> tuple[Words, frozenset[str], bool]:
    """The command in a wrapper's arguments, what is assigned for it, and whether -I was given."""
    left, assigned, replaces = list(words), set(), False
    while left and left[0] != "--" and (left[0] is None or left[0].startswith("-")):
        option = left.pop(0)
        name, equals, _ = (option or "").partition("=")
        replaces = replaces or name == "-I"
        if option in wrapper.flags or (equals and name in wrapper.valued):
            continue
        if option in wrapper.valued and left:
            left.pop(0)
            continue
        raise Unreadable("something that shows only when it runs" if option is None else option)
    if left and left[0] == "--":
        left.pop(0)
    while wrapper.assigns and left and left[0] and (found := _ASSIGNMENT.match(left[0])):
        assigned.add(found[1])
        left.pop(0)
    return tuple(left[wrapper.positional :]), frozenset(assigned), replaces
