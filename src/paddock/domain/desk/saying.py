"""What an agent may say at its task's desk; read strictly, since anybody inside can say it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.domain.errors import InvalidRequest

LONGEST_QUESTION = 2000
MOST_OPTIONS = 10
LONGEST_OPTION = 200
LONGEST_TEXT = 500
LONGEST_DETAIL = 2000
LONGEST_NAME = 63
MOST_CLAIMS = 20
MOST_OPEN = 3
"""Questions of one task that nobody has answered yet."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question for a person."""

    question: str
    options: tuple[str, ...] = ()
    timeout_s: float | None = None
    """How long the answer is of use; None is as long as questions are kept."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is, in its own words."""

    text: str
    percent: float | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What an agent itself says of a check. Nobody takes its word for it."""

    name: str
    passed: bool
    detail: str = ""
    at: float = 0.0


Wanted = Ask | Progress | Claim


def read(verb: str, given: object) -> Wanted:
    """InvalidRequest for what cannot be meant."""
    if not isinstance(given, Mapping):
        raise InvalidRequest("what is said must be a JSON object", remediation=_USAGE)
    known = _FIELDS.get(verb)
    if known is None:
        raise InvalidRequest(f"there is no {verb[:80]!r} at this desk", remediation=_USAGE)
    if unknown := sorted(str(name) for name in given if name not in known):
        names = ", ".join(known)
        raise InvalidRequest(f"{unknown[0][:80]!r} is not one of {names}", remediation=_USAGE)
    if verb == "ask":
        options = tuple(_options(given))
        return Ask(_text(given, "question", LONGEST_QUESTION), options, _seconds(given))
    if verb == "progress":
        return Progress(_text(given, "text", LONGEST_TEXT), _percent(given))
    passed = given.get("passed")
    if not isinstance(passed, bool):
        raise InvalidRequest("`passed` must be true or false", remediation=_USAGE)
    detail = _text(given, "detail", LONGEST_DETAIL) if given.get("detail") else ""
    return Claim(_text(given, "name", LONGEST_NAME), passed, detail)


_USAGE = (
    "ask: {question, options?, timeout_s?}; progress: {text, percent?}; "
    "verdict: {name, passed, detail?}"
)
_FIELDS = {
    "ask": ("question", "options", "timeout_s"),
    "progress": ("text", "percent"),
    "verdict": ("name", "passed", "detail"),
}


def _text(given: Mapping[Any, Any], name: str, longest: int) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"`{name}` must be a text", remediation=_USAGE)
    return _sound(value.strip(), name, longest)


def _sound(value: str, name: str, longest: int) -> str:
    if len(value) > longest:
        raise InvalidRequest(
            f"`{name}` has {len(value)} characters", remediation=f"{longest} is the most"
        )
    # Lone surrogates cannot be stored, and controls would be played to whoever reads it.
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in value)


def _options(given: Mapping[Any, Any]) -> list[str]:
    options = given.get("options") or []
    if not isinstance(options, list) or not all(isinstance(each, str) for each in options):
        raise InvalidRequest("`options` must be a list of texts", remediation=_USAGE)
    if len(options) > MOST_OPTIONS:
        raise InvalidRequest(
            f"there are {len(options)} options", remediation=f"{MOST_OPTIONS} is the most"
        )
    found = [_sound(each.strip(), "options", LONGEST_OPTION) for each in options]
    if not all(found) or len(set(found)) != len(found):
        raise InvalidRequest("`options` must differ, and none be empty", remediation=_USAGE)
    return found


def _seconds(given: Mapping[Any, Any]) -> float | None:
    value = given.get("timeout_s")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise InvalidRequest("`timeout_s` must be a number of at least 1", remediation=_USAGE)
    return float(value)


def _percent(given: Mapping[Any, Any]) -> float | None:
    value = given.get("percent")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise InvalidRequest("`percent` must be a number from 0 to 100", remediation=_USAGE)
    return float(value)
