"""Which commands may be run: rules over what a command would do, never over its first word.

A guard rail for agents and people who mean well. What a program that is allowed does is its own
business: the sandbox is the fence.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from paddock.domain.command_line import Read, Step, Word, Words, steps, turns
from paddock.domain.errors import InvalidRequest

MOST_RULES = 200
LONGEST_RULE = 512
ANY_WORDS = "**"
_LITERAL = re.compile(r"\[[*?[]\]")
"""A sign that stands for itself."""
_USUAL_PLACES = frozenset("/bin /sbin /usr/bin /usr/sbin /usr/local/bin /usr/local/sbin".split())


class Verdict(StrEnum):
    """What becomes of a command; each is stronger than the one before."""

    ALLOW = "allow"
    ASK = "ask"
    """Not without somebody's approval."""
    DENY = "deny"

    def outweighs(self, other: "Verdict") -> bool:
        return _STRENGTH[self] > _STRENGTH[other]


_STRENGTH = {verdict: number for number, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of command, and what becomes of it.

    `command` has the program first, then its arguments, in a shell's quoting: `*`, `?` and `[…]`
    match within a word, `**` any number of words. `git ** push ** --force* **`
    """

    name: str
    verdict: Verdict
    command: str

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > 100:
            raise InvalidRequest(
                f"a rule's name is {self.name[:120]!r}; it must have 1 to 100 characters",
                remediation="name it after what it is for",
            )
        if len(self.command) > LONGEST_RULE or not _pattern(self.command):
            raise InvalidRequest(
                f"rule {self.name!r} has no usable command: {self.command[:80]!r}",
                remediation=f"write it as `git push ** --force **`, in at most {LONGEST_RULE} "
                "characters, with every quote closed",
            )


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """Rules in their order: the first that fits a command decides."""

    rules: tuple[Rule, ...] = ()
    default: Verdict = Verdict.ALLOW
    """For what no rule fits."""
    unknown: Verdict = Verdict.DENY
    """For what cannot be told beforehand: never `allow`."""

    def __post_init__(self) -> None:
        if self.unknown is Verdict.ALLOW:
            raise InvalidRequest(
                "what cannot be told beforehand cannot be allowed as such",
                remediation="set unknown to deny or ask, and allow what you trust by a rule that "
                "names its program, such as `bash -l`",
            )
        names = [rule.name for rule in self.rules]
        if len(names) > MOST_RULES or len(set(names)) < len(names):
            raise InvalidRequest(
                f"a policy has {len(names)} rules, {len(set(names))} names",
                remediation=f"at most {MOST_RULES} rules, each with a name of its own",
            )


def exactly(name: str, argv: Sequence[str]) -> Rule:
    """Allows this command, word for word: nothing in it stands for anything else."""
    literal = ("".join(f"[{each}]" if each in "*?[" else each for each in word) for word in argv)
    return Rule(name, Verdict.ALLOW, shlex.join(literal))


def with_exception(policy: CommandPolicy, rule: Rule, to: str) -> CommandPolicy:
    """One rule more, right before the one that it is an exception to: what comes earlier still
    decides. At the end where it is the default that it makes an exception to."""
    names = [each.name for each in policy.rules]
    place = names.index(to) if to in names else len(names)
    return replace(policy, rules=(*policy.rules[:place], rule, *policy.rules[place:]))


def policy_of(kept: object) -> CommandPolicy:
    """A policy as it was stored: its fields, by name."""
    try:
        fields = dict(kept)  # type: ignore[call-overload]
        rules = tuple(Rule(r["name"], Verdict(r["verdict"]), r["command"]) for r in fields["rules"])
        return CommandPolicy(rules, Verdict(fields["default"]), Verdict(fields["unknown"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"this is no policy: {error}") from error


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a command, and why."""

    verdict: Verdict
    rule: str = ""
    """The rule that decided; empty where none did."""
    program: str = ""
    """What it was decided about. Arguments may hold what nobody should read later."""
    why: str = ""
    """For people."""


ALLOWED = Decision(Verdict.ALLOW)


class Fit(IntEnum):
    """Whether a rule is about a command."""

    NO = 0
    MAYBE = 1
    """It depends on what shows only when it runs."""
    SURELY = 2


def judge(
    policy: CommandPolicy,
    argv: Sequence[str],
    read: Read,
    env: Mapping[str, str] | None = None,
) -> Decision:
    """The strongest verdict on anything that this command would run."""
    found = ALLOWED
    for step in steps(argv, read, turned=turns(list(env or ()))):
        decision = _decide(policy, step)
        if decision.verdict.outweighs(found.verdict):
            found = decision
        if found.verdict is Verdict.DENY:
            break
    return found


def _decide(policy: CommandPolicy, step: Step) -> Decision:
    program = step.words[0] if step.words and step.words[0] else "?"
    for rule in policy.rules:
        fit = _fit(rule, step)
        if rule.verdict is Verdict.ALLOW:
            if fit is Fit.SURELY and _may_allow(rule, step):
                return ALLOWED
        elif fit:
            maybe = "it may be" if fit is Fit.MAYBE else "it is"
            return Decision(rule.verdict, rule.name, program, f"{maybe} {rule.command!r}")
    if step.unknown:
        return Decision(policy.unknown, program=program, why=step.unknown)
    if step.carries:
        return ALLOWED
    turned = ", while PATH or the like is set" if step.turned else ""
    return Decision(policy.default, program=program, why=f"no rule allows it{turned}")


def _may_allow(rule: Rule, step: Step) -> bool:
    """What cannot be told is allowed only by who named the program."""
    if step.turned:
        return False
    named = not set(_LITERAL.sub("", _pattern(rule.command)[0])) & set("*?[")
    return named or not step.unknown


def _fit(rule: Rule, step: Step) -> Fit:
    pattern = _pattern(rule.command)
    strict = rule.verdict is Verdict.ALLOW
    if _meets(pattern, step.words, strict=strict, sure=True):
        return Fit.SURELY
    return Fit.MAYBE if _meets(pattern, step.words, strict=strict, sure=False) else Fit.NO


def _meets(pattern: Sequence[str], words: Words, *, strict: bool, sure: bool) -> bool:
    """Row by row, so that no pattern takes longer than its length times the command's."""
    row = _reachable(pattern, {0})
    for number, word in enumerate(words):
        reached: set[int] = set()
        for at in row:
            reached.update(_after(pattern, at, word, first=number == 0, strict=strict, sure=sure))
        row = _reachable(pattern, reached)
        if not row:
            return False
    return len(pattern) in row


def _after(
    pattern: Sequence[str], at: int, word: Word, *, first: bool, strict: bool, sure: bool
) -> Iterable[int]:
    """Where in the pattern one can be once this word has passed."""
    if word is None and not sure:
        return range(at, len(pattern) + 1)
    if at == len(pattern):
        return ()
    if pattern[at] == ANY_WORDS:
        return (at,)
    if word is None:
        return ()
    meets = _is_program(pattern[at], word, strict) if first else fnmatchcase(word, pattern[at])
    return (at + 1,) if meets else ()


def _reachable(pattern: Sequence[str], places: Iterable[int]) -> set[int]:
    """`**` also stands for no word at all."""
    return set(_skipping(pattern, places))


def _skipping(pattern: Sequence[str], places: Iterable[int]) -> Iterator[int]:
    for place in places:
        yield place
        while place < len(pattern) and pattern[place] == ANY_WORDS:
            place += 1
            yield place


def _is_program(pattern: str, word: str, strict: bool) -> bool:
    """A bare name forbids the program wherever it lies, and allows it only where it usually does:
    a file of that name in somebody's directory is another program."""
    if "/" in pattern or "/" not in word:
        return fnmatchcase(word, pattern)
    place, _, name = word.rpartition("/")
    return (not strict or place in _USUAL_PLACES) and fnmatchcase(name, pattern)


@lru_cache(maxsize=4096)
def _pattern(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return ()
