"""Which git worktree a directory belongs to, and what that is called on every server."""

import hashlib
import os
import platform
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote_to_bytes

from paddock.domain.errors import Refused, Unavailable
from paddock.interfaces.cli.failures import refuse

_SCHEME = "worktree://"
_LONGEST = 512
_GIT_S = 120
# A hook of git has these for its own repository, whatever directory is meant here.
_OF_A_REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE"),
)


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree by its top level, and the directory in it that was meant."""

    top: Path
    below: PurePosixPath

    @property
    def identity(self) -> str:
        return f"{prefix()}{quote(os.fsencode(self.top))}"

    @property
    def git_dir(self) -> Path:
        """Its own: every worktree has one."""
        return Path(_line(self.top, "rev-parse", "--absolute-git-dir"))

    @property
    def common_dir(self) -> Path:
        """The repository's, which stays when a worktree goes."""
        words = ("rev-parse", "--path-format=absolute", "--git-common-dir")
        return Path(_line(self.top, *words))

    @property
    def is_main(self) -> bool:
        return self.git_dir == self.common_dir


def find(directory: Path) -> Worktree:
    """The innermost worktree around the directory. A submodule is part of its superproject's."""
    if not directory.is_dir():
        refuse(f"{directory} is no directory", "name one in a git worktree")
    directory = directory.resolve()
    top = _top(directory)
    while outer := _line(top, "rev-parse", "--show-superproject-working-tree"):
        top = _top(Path(outer))
    found = Worktree(top, PurePosixPath(directory.relative_to(top)))
    if len(found.identity) > _LONGEST:
        refuse(
            f"the path {top} is too long to tell a sandbox by: {len(found.identity)} characters, "
            f"at most {_LONGEST}",
            "move the worktree to a shorter path, or use `paddock create` and `exec` with a name",
        )
    return found


def is_worktree(path: Path) -> bool:
    """Whether it is still the top of one."""
    if not path.is_dir():
        return False
    done = _run(path, ("rev-parse", "--show-toplevel"))
    return done.returncode == 0 and Path(os.fsdecode(done.stdout[:-1])) == path


def path_of(identity: str) -> Path | None:
    """The path of an identity of this machine; None of others."""
    if not identity.startswith(f"{prefix()}/"):
        return None
    return Path(os.fsdecode(unquote_to_bytes(identity.removeprefix(prefix()))))


def prefix(*, any_host: bool = False) -> str:
    """What identities of this machine's worktrees begin with."""
    return _SCHEME if any_host else f"{_SCHEME}{_host()}"


def git(place: Path, *words: str) -> bytes:
    """What git says; Refused, with its own words, when it fails."""
    done = _run(place, words)
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
    raise Refused(
        f"git {words[0]}: {said}", remediation=f"try `git -C {place} {shlex.join(words)}`"
    )


def _run(place: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    env = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}
    try:
        return subprocess.run(
            ["git", "-C", os.fspath(place), *words],
            env={**env, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_GIT_S,
        )
    except FileNotFoundError as error:
        fix = "apt-get install git"
        raise Unavailable("git is not installed on this machine", remediation=fix) from error


def _line(place: Path, *words: str) -> str:
    return os.fsdecode(git(place, *words).removesuffix(b"\n"))


def _top(directory: Path) -> Path:
    done = _run(directory, ("rev-parse", "--show-toplevel"))
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        refuse(
            f"{directory} is in no git worktree: {said}",
            "go to one, or `git init` here; or name a sandbox: `paddock exec NAME -- CMD`",
        )
    return Path(os.fsdecode(done.stdout.removesuffix(b"\n")))


def _host() -> str:
    """This machine: a path means something else on another. The id itself is not for others."""
    for file in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            name = Path(file).read_text().strip()
        except OSError:
            continue
        if name:
            break
    else:
        name = platform.node()
    return hashlib.sha256(f"paddock worktree {name}".encode()).hexdigest()[:12]
