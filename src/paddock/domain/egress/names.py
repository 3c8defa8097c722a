"""Host names as rules, DNS questions, TLS and HTTP spell them: one form, or none."""

import re

LONGEST = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def normal(name: str) -> str:
    """Lower case, without the final dot, international names in their ASCII form.

    Empty for what is no host name, such as an address, also in the forms that only inet_aton(3)
    understands: `127.1` and `0x7f000001` are names to a rule and loopback to a program.
    """
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            return ""
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > LONGEST or not all(map(_LABEL.fullmatch, labels)):
        return ""
    return "" if _NUMBER.fullmatch(labels[-1]) else name


def fits(pattern: str, name: str) -> bool:
    """`*.x.y` is every name below x.y, not x.y itself; `*` is every name."""
    if pattern == "*":
        return bool(name)
    if pattern.startswith("*."):
        return name.endswith(pattern[1:]) and len(name) > len(pattern) - 1
    return name == pattern


def covers(pattern: str, other: str) -> bool:
    """Whether every name that fits the other pattern fits this one."""
    if pattern in ("*", other):
        return True
    return (
        pattern.startswith("*.")
        and other.removeprefix("*").endswith(pattern[1:])
        and (other != pattern[2:])
    )
