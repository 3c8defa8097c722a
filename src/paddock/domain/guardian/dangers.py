"""Commands that somebody should look at: a table, each entry with why.

A guard rail for agents that mean well, not a fence: whatever can be written in a shell can be
written so that no table knows it. The sandbox is the fence.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from paddock.domain.command_line import Script, steps
from paddock.domain.guardian.deeds import Deed
from paddock.domain.guardian.places import SYSTEM, matches, resolved
from paddock.domain.rough_script import Command, all_feeding, read_roughly, without_quoted

_DEEPEST = 6
_SHELLS = frozenset("sh bash dash ash ksh zsh fish".split())
_INTERPRETERS = _SHELLS | frozenset("python python3 perl ruby node php".split())
_FETCHERS = frozenset("curl wget fetch aria2c http https lynx".split())
_EVALUATORS = frozenset("eval source .".split())
_READERS = frozenset(
    "cat tac less more head tail nl base64 base32 xxd od hexdump strings cp mv scp rsync tar zip "
    "gzip grep rg sed awk cut sort jq yq curl wget nc openssl python python3 perl node".split()
)
_SEARCHERS = frozenset("grep rg sed awk jq yq".split())
"""What they look for comes before where."""
_SHIPPED = SYSTEM - frozenset("/home /root /opt /srv".split())
_PROTECTED = frozenset({"main", "master"})
_DISK = re.compile(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|dm-|loop|md|mem|kmem|mapper)\w*")
_ANYBODY = re.compile(r"0?[0-7]?777|(?:a|o|ugo)?\+rwx|o\+w|a\+w")
_SOMEWHERE = "?"
"""A directory that shows only when it runs: what is relative there means nothing to us."""
_ALL_IN = re.compile(r"(?:(?<=/)|^)(?:\.|\{,\.\})?\*$")
_CODE = re.compile(r"-[a-z]*[cempr]|--eval|--print")
_FORK_BOMB = re.compile(
    r"(?<![\w:.-])([\w:.-]{1,64})\s?\(\s?\)\s{0,9}\{\s{0,9}\1\s?\|\s?\1\s?&\s{0,9}\}\s?;?\s{0,9}\1"
)
"""Bounded in every part: an agent may write what makes a careless pattern take minutes."""

SECRETS = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/proc/[0-9]*/environ",
    "~/.ssh/id_*",
    "~/.aws/credentials",
    "~/.azure/accessTokens.json",
    "~/.config/gcloud/application_default_credentials.json",
    "~/.config/gcloud/credentials.db",
    "~/.config/gh/hosts.yml",
    "~/.docker/config.json",
    "~/.kube/config",
    "~/.netrc",
    "~/.git-credentials",
    "~/.npmrc",
    "~/.pypirc",
    "~/.gnupg",
    "~/.claude/.credentials.json",
    "~/.codex/auth.json",
    "~/.gemini/oauth_creds.json",
    "~/.local/share/opencode/auth.json",
)
"""Where programs keep what lets them in; in anybody's home."""
_METADATA = re.compile(r"//(?:169\.254\.169\.254|metadata\.google\.internal|\[fd00:ec2::254\])")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is run."""

    cwd: str = "/"
    home: str = "/root"


@dataclass(frozen=True, slots=True)
class Run:
    """One program that a command would run, without what is wrapped around it."""

    program: str
    words: tuple[str, ...]
    """Its arguments."""
    command: Command = field(default_factory=Command)
    place: Place = field(default_factory=Place)

    @property
    def flags(self) -> str:
        """The letters of its short options."""
        return "".join(w[1:] for w in self.words if re.fullmatch(r"-[A-Za-z]+", w))

    def operands(self) -> Iterator[str]:
        yield from (w for w in self.words if not w.startswith("-"))

    def places(self, paths: Iterable[str]) -> Iterator[str]:
        for path in paths:
            if (found := resolved(path, self.place.cwd, self.place.home)) is not None:
                yield found


@dataclass(frozen=True, slots=True)
class Danger:
    """One kind of command, and why somebody should look at it."""

    name: str
    why: str
    is_in: Callable[[Run], bool]


@dataclass(frozen=True, slots=True)
class Found:
    """A danger, and the program that it was found in: never its arguments."""

    name: str
    why: str
    program: str


def _removes_all(run: Run) -> bool:
    if run.program == "rm":
        everything = bool({"r", "R"} & set(run.flags)) or "--recursive" in run.words
        return "--no-preserve-root" in run.words or (everything and _is_much(run, run.operands()))
    if run.program == "find":
        deletes = "-delete" in run.words or {"-exec", "rm"} <= set(run.words)
        narrowed = any(w in ("-name", "-iname", "-path", "-mtime", "-empty") for w in run.words)
        return deletes and not narrowed and _is_much(run, list(run.operands())[:1])
    return False


def _is_much(run: Run, paths: Iterable[str]) -> bool:
    """All of the machine, of a system directory or of somebody's home."""
    bare = (_ALL_IN.sub(".", path) for path in paths)
    return any(
        found in SYSTEM or found == run.place.home or posixpath.dirname(found) == "/home"
        for found in run.places(bare)
    )


def _opens_all(run: Run) -> bool:
    everything = "R" in run.flags or "--recursive" in run.words
    operands = list(run.operands())
    if not everything or not operands:
        return False
    if run.program == "chmod":
        return bool(_ANYBODY.fullmatch(operands[0])) and _is_much(run, operands[1:])
    return run.program == "chown" and bool(_SHIPPED & set(run.places(operands[1:])))


def _writes_disk(run: Run) -> bool:
    targets = list(run.command.writes)
    if run.program == "dd":
        targets += [w.removeprefix("of=") for w in run.words if w.startswith("of=")]
    elif run.program in ("shred", "wipefs", "tee", "cp", "mv") or run.program.startswith("mkfs"):
        targets += run.operands()
    return any(_DISK.match(target) for target in targets)


def _forces_push(run: Run) -> bool:
    words = _of_git(run)
    if words[:1] != ["push"]:
        return False
    options = {w.partition("=")[0] for w in words if w.startswith("-")}
    refs = [w for w in words[1:] if not w.startswith("-")][1:]
    forced = bool(options & {"-f", "--force", "--force-with-lease"}) or "f" in run.flags
    if "--mirror" in options or (forced and not set(refs) - {"HEAD"}):
        return "--tags" not in options
    deletes = bool(options & {"-d", "--delete"})
    return any(
        _branch(ref) in _PROTECTED
        for ref in refs
        if forced or deletes or ref.startswith(("+", ":"))
    )


def _branch(ref: str) -> str:
    return ref.rpartition(":")[2].lstrip("+").removeprefix("refs/heads/")


def _of_git(run: Run) -> list[str]:
    """Its verb and what follows."""
    if run.program != "git":
        return []
    left = list(run.words)
    while left and left[0].startswith("-"):
        valued = left.pop(0) in ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
        left = left[1:] if valued else left
    return left


def _runs_fetched(run: Run) -> bool:
    if run.program not in _EVALUATORS | _INTERPRETERS:
        return False
    if not any(_program(each.words) in _FETCHERS for each in all_feeding(run.command)):
        return False
    if run.program in _EVALUATORS:
        return True
    code = _code(run)
    if code is not None:
        return code.startswith(("$(", "`", "<("))
    return True


def _code(run: Run) -> str | None:
    """The program text or file that an interpreter is given; None when it reads its input."""
    given = _CODE if run.program not in _SHELLS else re.compile(r"-[a-z]*c[a-z]*")
    for number, word in enumerate(run.words[:-1]):
        if given.fullmatch(word):
            return run.words[number + 1]
    if run.program in _SHELLS and "s" in run.flags:
        return None
    return next(run.operands(), None)


def _reads_secret(run: Run) -> bool:
    if any(_METADATA.search(w) for w in run.words) and run.program in _FETCHERS | _READERS:
        return True
    paths = list(run.command.reads)
    if run.program in _READERS:
        operands = list(run.operands())[1 if run.program in _SEARCHERS else 0 :]
        used = {after for word, after in pairwise(run.words) if word == "-i"}
        paths += [w.partition("=@")[2] or w.lstrip("@") for w in operands if w not in used]
    return any(is_secret(path, run.place) for path in paths)


def is_secret(path: str, place: Place) -> bool:
    found = resolved(path, place.cwd, place.home)
    if found is None or found.endswith(".pub"):
        return False
    return any(matches(found, SECRETS, "/", home) for home in (place.home, "/home/*", "/root"))


def _ends_all(run: Run) -> bool:
    return run.program == "kill" and "-1" in run.words[1:]


DANGERS = (
    Danger("removes-all", "it deletes a whole system directory or home", _removes_all),
    Danger("opens-all", "it opens or gives away a whole system directory or home", _opens_all),
    Danger("writes-disk", "it writes to a disk itself, past every file system", _writes_disk),
    Danger(
        "forces-push", "it replaces or deletes what others have on main or master", _forces_push
    ),
    Danger("runs-fetched", "it runs what it fetches, unseen", _runs_fetched),
    Danger("reads-secret", "it reads what is known to hold credentials", _reads_secret),
    Danger("ends-all", "it ends every process that it may", _ends_all),
)
FORK_BOMB = Found("fork-bomb", "it starts itself without end", "sh")


def danger_in(deed: Deed, place: Place) -> Found | None:
    """The first that is found in a tool call."""
    if deed.reads and any(is_secret(path, place) for path in deed.paths):
        return Found("reads-secret", "it reads what is known to hold credentials", deed.tool)
    if not deed.argv:
        return None
    if deed.is_script and _FORK_BOMB.search(without_quoted(deed.argv[0])):
        return FORK_BOMB
    return next(_found(runs_of(deed, place)), None)


def _found(runs: Iterable[Run]) -> Iterator[Found]:
    for run in runs:
        if _FORK_BOMB.search(without_quoted(_script_of(run))):
            yield FORK_BOMB
        yield from (Found(d.name, d.why, run.program) for d in DANGERS if d.is_in(run))


def runs_of(deed: Deed, place: Place) -> Iterator[Run]:
    """Every program that a tool call would run, as far as it says."""
    if deed.cwd:
        place = Place(resolved(deed.cwd, place.cwd, place.home) or _SOMEWHERE, place.home)
    commands = read_roughly(deed.argv[0]) if deed.is_script else [Command(list(deed.argv))]
    yield from _runs(commands, place, 0)


def _moved(run: Run) -> Place:
    target = next(run.operands(), "~")
    found = resolved(target, run.place.cwd, run.place.home)
    return Place(found or _SOMEWHERE, run.place.home)


def _runs(commands: Iterable[Command], place: Place, depth: int) -> Iterator[Run]:
    """Each command, what it wraps (sudo, env, timeout, xargs), and the scripts of its shells."""
    for command in commands:
        run = Run("", (), command, place)
        for step in steps(command.words, lambda _text: Script(())):
            words = tuple(word for word in step.words if word is not None)
            run = Run(_program(words), words[1:], command, place) if words else run
            yield run
        if not command.words:
            yield run
        if depth < _DEEPEST and (script := _script_of(run)):
            yield from _runs(read_roughly(script), place, depth + 1)
        if run.program == "cd":
            place = _moved(run)


def _script_of(run: Run) -> str:
    """What a shell is told to run: in its arguments, or by a here-document."""
    if run.program == "eval":
        return " ".join(run.words)
    if run.program not in _SHELLS:
        return ""
    return run.command.here if (code := _code(run)) is None else code if "c" in run.flags else ""


def _program(words: Iterable[str]) -> str:
    first = next(iter(words), "")
    return first.rpartition("/")[2]
