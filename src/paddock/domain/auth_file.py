"""Files that an agent's own log-in made: what of them may leave this host (K7).

An access token ends by itself. A refresh token makes new ones for as long as nobody notices, and
the maker of many agents withdraws it when two use it. So it stays here: its value is made empty,
and its key stays, since agents refuse a file that lacks it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from paddock.domain.errors import InvalidRequest

_REFRESH = re.compile(r"refresh([_-]?token)?", re.IGNORECASE)
_WRITTEN = re.compile(
    r"(?P<key>refresh[_-]?token)[\\\\\"']*\s*[:=]\s*[\\\\\"']*[\w.~+/-]", re.IGNORECASE
)
"""In text that is no JSON: as part of a URL, of a line of settings, of JSON that was cut off."""


def blanked(text: str) -> str:
    """The same file without any refresh token, also where JSON is held in a string of it.

    InvalidRequest when it is no JSON, or when one would be left.
    """
    content = _blanked(_read(text))
    if left := sorted(set(_left(content))):
        raise InvalidRequest(
            f"a refresh token would be left in the file, under {', '.join(left)}",
            remediation="log in anew and store what that makes, or use an API key",
        )
    return json.dumps(content, indent=2)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unread() from error


def _unread() -> InvalidRequest:
    return InvalidRequest(
        "the file that an agent's log-in made is not JSON, so nobody knows what is in it",
        remediation="store the whole file as it is, or use an API key",
    )


def _blanked(value: Any) -> Any:
    match value:
        case dict():
            return {
                key: "" if _REFRESH.fullmatch(key) else _blanked(each)
                for key, each in value.items()
            }
        case list():
            return [_blanked(each) for each in value]
        case str() if (held := _held(value)) is not None:
            emptied = _blanked(held)
            return value if emptied == held else json.dumps(emptied)
    return value


def _left(value: Any) -> Iterator[str]:
    """Keys under which something that refreshes is still there."""
    match value:
        case dict():
            for key, each in value.items():
                if _REFRESH.fullmatch(key) and each not in ("", None):
                    yield key
                yield from _left(each)
        case list():
            for each in value:
                yield from _left(each)
        case str() if (held := _held(value)) is not None:
            yield from _left(held)
        case str() if (found := _WRITTEN.search(value)) is not None:
            yield found["key"]


def _held(text: str) -> Any:
    """What a string holds, if that is an object or a list written down."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
    except RecursionError as error:
        raise _unread() from error
