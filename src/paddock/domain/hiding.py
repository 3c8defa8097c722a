"""Taking out of a text what nobody is to read: known values, and what looks like a credential."""

import re
from collections.abc import Collection

HIDDEN = "•••"
_SHORTEST = 6
"""A shorter value is in too many words to be taken out of them."""
_NAMED = re.compile(
    r"(?i)((?:token|secret|passw(?:or)?d|api[-_]?key|authorization|credential)s?[\"']?\s*[=:]\s*)"
    r"(?:bearer\s+|basic\s+)?[^\s\"',;&]+"
)
_OPTION = re.compile(
    r"(?i)(--?[a-z-]*(?:token|secret|passw(?:or)?d|api-?key)[a-z-]*[ =])(?!-)[^\s\"']+"
)
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}")
_IN_URL = re.compile(r"(://[^/\s:@]*:)[^@\s/]+(@)")
_KEY = re.compile(
    r"\b(?:sk|pk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abp]|AKIA|AIza|pdk)[-_A-Za-z0-9]{12,}"
)
_LONG = re.compile(r"(?<![/\w.-])(?=[A-Za-z0-9+_-]*[0-9])(?=[A-Za-z0-9+_-]*[A-Za-z])[\w+-]{32,}")


def without_values(text: str, values: Collection[str]) -> str:
    """With the longest first, so that none shows through where one is part of another."""
    for value in sorted((each for each in values if len(each) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for pattern in (_NAMED, _OPTION, _BEARER):
        text = pattern.sub(lambda found: f"{found[1]}{HIDDEN}", text)
    text = _IN_URL.sub(lambda found: f"{found[1]}{HIDDEN}{found[2]}", text)
    return _LONG.sub(HIDDEN, _KEY.sub(HIDDEN, text))
