"""Prompts with variables: `{{title}}` stands for what was given as `title`.

Only where variables are given, be it none: other prompts may hold any braces. What is put in is not
looked into again, so that no value can ask for another.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from paddock.domain.errors import InvalidRequest

BUILT_IN: Mapping[str, str] = {
    "task_id": "the task's id",
    "task_name": "its name",
    "sandbox": "the name of the sandbox that it works in",
    "sandbox_id": "the id of that",
    "directory": "where in the sandbox it works",
    "checks": "the commands that it has to pass, one a line",
}
MOST_VARIABLES = 64
LONGEST_VALUE = 64 << 10
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLACE = re.compile(r"\{\{([^{}\n]{0,100})\}\}")
"""Blanks are taken off the name afterwards: an expression for them takes for ever on many."""
_SHORTEST_SECRET = 12
"""Shorter ones are not compared: they can be guessed, and who is refused would know it."""


def check_template(prompt: str, variables: Mapping[str, str]) -> None:
    """InvalidRequest for what has no value, and for names that are none."""
    _check_amount(variables)
    for name in variables:
        if not _NAME.fullmatch(name) or name in BUILT_IN:
            why = "is Paddock's own" if name in BUILT_IN else "is no name for a variable"
            raise InvalidRequest(
                f"{name[:80]!r} {why}",
                remediation="name it with letters, digits and `_`; Paddock's own are: "
                f"{', '.join(BUILT_IN)}",
            )
    known = {*variables, *BUILT_IN}
    if unknown := sorted({_name(place) for place in _PLACE.finditer(prompt)} - known):
        raise InvalidRequest(
            f"the prompt has variables that nobody gave: {_listed(unknown)}",
            remediation=f"known are: {_listed(sorted(known))}; leave `variables` out for a prompt "
            "whose braces are meant as they are",
        )


def _check_amount(variables: Mapping[str, str]) -> None:
    if len(variables) > MOST_VARIABLES:
        raise InvalidRequest(
            f"{len(variables)} variables; {MOST_VARIABLES} is the most", remediation="give fewer"
        )
    for name, value in variables.items():
        if len(value) > LONGEST_VALUE:
            raise InvalidRequest(
                f"the variable {name[:80]!r} has {len(value)} characters; {LONGEST_VALUE} are the "
                "most",
                remediation="give the long part as a file, and name that in the prompt",
            )


def check_no_secret(
    variables: Mapping[str, str], names: Collection[str], values: Iterable[str]
) -> None:
    """InvalidRequest where one is called like a secret of the team, or holds the value of one that
    is not short. The value is in no message."""
    secrets = [each for value in values if len(each := value.strip()) >= _SHORTEST_SECRET]
    for name, value in variables.items():
        held = any(each in value for each in secrets)
        if name in names or held:
            how = "holds the value of a secret" if held else "is called like a secret"
            raise InvalidRequest(
                f"the variable {name!r} {how} of the team, and prompts are kept and sent to models",
                remediation="bind the secret (`paddock secrets bind`): the agent uses it without "
                "seeing it",
            )


def size_filled_in(prompt: str, values: Mapping[str, str]) -> int:
    """Its bytes with what is known in its places. Nothing is made for it: a long value in many
    places is more than fits into memory."""
    sizes = {name: size_of(value) for name, value in values.items()}
    places = (place for place in _PLACE.finditer(prompt) if _name(place) in sizes)
    return size_of(prompt) + sum(sizes[_name(place)] - size_of(place[0]) for place in places)


def filled_in(prompt: str, values: Mapping[str, str]) -> str:
    """With what is known in its places; what is not stays as it is. `size_filled_in` says
    beforehand whether that is too much."""
    return _PLACE.sub(lambda place: values.get(_name(place), place[0]), prompt)


def size_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _name(place: re.Match[str]) -> str:
    return place[1].strip(" \t")


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:80] for name in names[:20])
    return f"{shown}, …" if len(names) > 20 else shown
