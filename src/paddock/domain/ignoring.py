"""What a snapshot leaves out: a template's rules, each of which says where something lies.

A rule that only says how something is called would take a user's own directory of that name with
it, wherever it lies. So every rule is a path from the root, a pattern may stand only in its last
part, and none may cover the place where the work is.
"""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from paddock.domain.errors import InvalidRequest

MOST_RULES = 100
MOST_SHOWN = 100
"""So many paths a snapshot names of those it has left out; the others are counted."""
_LONGEST = 1024
_WILD = frozenset("*?")


class Whole(StrEnum):
    """Why a snapshot holds everything although its template has rules."""

    ASKED = "asked"
    AUTOMATIC = "automatic"
    """Paddock took it by itself, and nobody was there to say what may be missing."""
    MEMORY = "memory"
    """Programs that go on expect the files that they had."""
    PROVIDER = "provider"
    """It cannot leave anything out."""
    WORK = "work"
    """By the rules nothing would have remained of the home or the working directory."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What really was left out: the paths that rules met, each with all that lay below it."""

    paths: tuple[str, ...] = ()
    """The first of them. Bytes that are no UTF-8 are written as `\\xNN`."""
    count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ignoring:
    """What the template said when a snapshot was taken, and what became of it."""

    rules: tuple[str, ...] = ()
    whole: Whole | None = None
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def applied(self) -> tuple[str, ...]:
        return () if self.whole else self.rules


@dataclass(frozen=True, slots=True)
class Rule:
    """One path from the root; its last part may be a pattern."""

    parent: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> "Rule":
        _check_form(text)
        *parent, name = text.removeprefix("/").removesuffix("/").split("/")
        if {"", ".", ".."} & {*parent, name}:
            raise InvalidRequest(
                f"the rule {text!r} is no plain path: it names the root, or has '//', '.' or '..'",
                remediation="write the path as `realpath` would print it inside the sandbox",
            )
        if wild := [part for part in parent if _WILD & set(part)]:
            raise InvalidRequest(
                f"the rule {text!r} has the pattern {wild[0]!r} before its last part: it would "
                f"leave out {name!r} from directories that nobody has named",
                remediation="write one rule for each directory; '*' and '?' may only stand in the "
                "last part, as in /tmp/*",
            )
        if "**" in name and name != "**":
            raise InvalidRequest(
                f"the rule {text!r} has '**' inside a name",
                remediation="write '*'; what is met is left out with all that lies below it",
            )
        return cls(tuple(parent), name)

    @property
    def is_pattern(self) -> bool:
        return bool(_WILD & set(self.name))

    def meets(self, name: str) -> bool:
        """Whether an entry of the rule's directory is meant. Hidden ones are like any other."""
        # A bracket is a character like any other: files are named so.
        return fnmatchcase(name, self.name.replace("[", "[[]"))

    def covers(self, directory: str) -> bool:
        """Whether nothing of the directory might remain: it is met, or what is in it is, whatever
        it is called. `?*` is `*` again, and several of them together are."""
        parts = tuple(part for part in directory.split("/") if part)
        depth = len(self.parent)
        if parts[:depth] != self.parent:
            return False
        return set(self.name) <= _WILD or (len(parts) > depth and self.meets(parts[depth]))


def _check_form(text: str) -> None:
    shown = repr(text[:80])
    if not text.startswith("/"):
        name = text.strip("/*~$.") or "name"
        raise InvalidRequest(
            f"the rule {shown} does not say where: whatever has this name would be left out, a "
            "user's own directory too",
            remediation="write the whole path inside the sandbox, beginning with '/', such as "
            f"/home/user/{name[:80]}",
        )
    if len(text) > _LONGEST or not text.isprintable():
        raise InvalidRequest(
            f"the rule {shown} is longer than {_LONGEST} characters or has some that cannot be "
            "printed",
            remediation="name a directory above it",
        )


def parsed(rules: Sequence[str], work: Iterable[str] = ()) -> list[Rule]:
    """The rules, or InvalidRequest: for one that is none, or covers a directory of the work."""
    if len(rules) > MOST_RULES:
        raise InvalidRequest(
            f"{len(rules)} rules were given; at most {MOST_RULES} can be",
            remediation="name a directory above, or use a pattern in the last part",
        )
    found = [Rule.parse(text) for text in rules]
    for directory in work:
        for text, rule in zip(rules, found, strict=True):
            if rule.covers(directory):
                raise InvalidRequest(
                    f"the rule {text!r} would leave out {directory}, where the work is",
                    remediation="name what may be missing inside it, such as "
                    f"{directory.rstrip('/')}/.cache",
                )
    return found


def check_whole(rules: Sequence[str]) -> None:
    """InvalidRequest for rules where memory is kept: its programs expect the files they had."""
    if rules:
        raise InvalidRequest(
            "a snapshot with memory was asked to leave paths out, but the programs in it go on "
            "with files that would be missing",
            remediation="take it without memory, or with everything",
        )


def places_of_work(user: str, workdir: str) -> tuple[str, ...]:
    """The home of who works there and where commands start, as far as the names tell.

    Root's home always: it is where a user works whom the root file system does not know.
    """
    name = user.partition(":")[0]
    known = name and not name.isdigit() and name != "root"
    homes = (f"/home/{name}" if known else "/home/user", "/root")
    return (*homes, posixpath.normpath(f"/{workdir.lstrip('/')}")) if workdir else homes


def check_workdir(workdir: str) -> None:
    if workdir and (not workdir.startswith("/") or ".." in workdir.split("/")):
        raise InvalidRequest(
            f"the working directory {workdir[:80]!r} is no path from the root, or has '..'",
            remediation="write the path as `realpath` would print it inside the sandbox",
        )


def decide(
    rules: Sequence[str], *, asked: bool, automatic: bool, memory: bool, able: bool
) -> Ignoring:
    """Whether a snapshot applies its template's rules: in doubt nothing is missing."""
    if not rules:
        return Ignoring()
    reasons = (
        (automatic, Whole.AUTOMATIC),
        (asked, Whole.ASKED),
        (memory, Whole.MEMORY),
        (not able, Whole.PROVIDER),
    )
    whole = next((reason for holds, reason in reasons if holds), None)
    return Ignoring(tuple(rules), whole)
