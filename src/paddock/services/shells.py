"""Shells in a sandbox: those that people sit at, and those that bring a program what people have.

Version managers are functions, and their installers write them to the end of `~/.bashrc`. Only a
shell that is both a login shell and an interactive one reads all that a person's terminal reads.
"""

from collections.abc import Sequence

SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l")
"""For a terminal."""

# What profile files print is not the command's output, and what stands on its input is not theirs;
# an interactive bash without a terminal also complains that it has none.
_ENTER = """
exec 7<&0 8>&1 9>&2 </dev/null >/dev/null 2>&1
export PADDOCK_PATH="$PATH"
command -v bash && exec bash -l -i -c "$1" bash "$@"
exec sh -l -c "$1" sh "$@"
"""
# /etc/profile sets the PATH anew. What it and the others add goes before what image, template and
# caller have set. An interactive bash does not heed SIGTERM and says "logout" at its end, so a
# program takes its place, and what only a shell can run has a subshell.
_GO_ON = """
exec <&7 >&8 2>&9 7<&- 8>&- 9>&-
added= rest=$PATH:
while [ -n "$rest" ]; do
    case ":$PADDOCK_PATH:" in *":${rest%%:*}:"*) ;; *) added=$added${rest%%:*}: ;; esac
    rest=${rest#*:}
done
PATH=$added$PADDOCK_PATH
unset PADDOCK_PATH added rest
trap 'exit 143' TERM
shift
case $1 in script) (eval "$2") ;; *)
    shift
    case $(command -v "$1") in /*) exec "$@" ;; *) ("$@") ;; esac ;;
esac
"""
_MARK = "paddock-login"
_HEAD = ("/bin/sh", "-c", _ENTER, _MARK, _GO_ON)
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/sh", "/usr/bin/bash")


def login(argv: Sequence[str]) -> tuple[str, ...]:
    """The same command with everything that a person's login shell has, functions included.

    `sh -c SCRIPT` and `bash -lc SCRIPT` would be another shell, without the functions: their script
    is run by the login shell itself.
    """
    if len(argv) == 3 and argv[0] in _SHELLS and argv[1] in ("-c", "-lc"):
        return (*_HEAD, "script", argv[2])
    return (*_HEAD, "words", *argv)


def asked_for(argv: Sequence[str]) -> tuple[str, ...]:
    """What was asked for, of a command that `login` may have made."""
    if tuple(argv[:4]) != _HEAD[:4] or len(argv) < 7:
        return tuple(argv)
    kind, *words = argv[5:]
    return ("sh", "-c", *words) if kind == "script" else tuple(words)
