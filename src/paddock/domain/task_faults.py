"""Whose fault a failure is: the code's, which gets another try, or that of what is around it.

| fault | what is wrong | by what it is known |
|---|---|---|
| code | what the agent made | a check that ended by itself, and none of the below |
| command | a program is not there, or cannot be executed | exit codes 126 and 127 |
| network | a host cannot be reached, or may not be | words of resolvers and of the gateway |
| credential | a key, a log-in or a right is missing | words of git, ssh, APIs; HTTP 401, 403 |
| limit | a quota, a rate or a budget is used up | HTTP 402 and 429, and their words |
| disk | nothing more can be written | ENOSPC, EDQUOT and EROFS |
| memory | the kernel ended it for want of memory | its words, and the guest's |
| model | the model API does not do its work | HTTP 5xx, and their words |
| unknown | nobody can say: it gave no answer | a time limit, a signal from outside |

What nobody can say counts as a fault of the surroundings: an agent cannot put that right, and its
tries cost money.
"""

import re
from enum import StrEnum


class Fault(StrEnum):
    """Of whom."""

    CODE = "code"
    COMMAND = "command"
    NETWORK = "network"
    CREDENTIAL = "credential"
    LIMIT = "limit"
    DISK = "disk"
    MEMORY = "memory"
    MODEL = "model"
    UNKNOWN = "unknown"

    @property
    def is_surroundings(self) -> bool:
        return self is not Fault.CODE


_NOT_STARTED = (126, 127)
_END = 4000
"""What a program dies of stands at the end of what it says."""


def _any(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words), re.IGNORECASE)


# What no test of somebody's code says by itself.
_SURE: tuple[tuple[Fault, re.Pattern[str]], ...] = (
    (
        Fault.DISK,
        _any(
            r"no space left on device",
            r"\bENOSPC\b",
            r"disk quota exceeded",
            r"\bEDQUOT\b",
            r"read-only file system",
        ),
    ),
    (Fault.MEMORY, _any(r"cannot allocate memory", r"out of memory: killed", r"\bOOMKilled\b")),
    (
        Fault.NETWORK,
        _any(
            r"could not resolve host",
            r"temporary failure in name resolution",
            r"temporary failure resolving",
            r"\bEAI_AGAIN\b",
            r"getaddrinfo ENOTFOUND",
            r"\bENETUNREACH\b",
            r"network is unreachable",
            r"cannot be reached from this sandbox",
            r"\begress_denied\b",
        ),
    ),
    (
        Fault.CREDENTIAL,
        _any(
            r"could not read (username|password) for",
            r"permission denied \(publickey",
            r"fatal: authentication failed",
            r"host key verification failed",
            r"npm (err!|error) code E40[13]",
        ),
    ),
)
# What an agent says of its model; in the output of a test it may be what is tested.
_OF_AGENTS: tuple[tuple[Fault, re.Pattern[str]], ...] = (
    (
        Fault.LIMIT,
        _any(
            r"\b(402|429)\b",
            r"rate.?limit",
            r"too many requests",
            r"quota",
            r"credit balance",
            r"insufficient (funds|balance)",
            r"spend limit",
            r"usage limit",
            r"resource_exhausted",
        ),
    ),
    (
        Fault.CREDENTIAL,
        _any(
            r"\b(401|403)\b",
            r"invalid (x-)?api.?key",
            r"incorrect api key",
            r"api key (not valid|not found|is missing)",
            r"unauthori[sz]ed",
            r"forbidden",
            r"permission_error",
            r"authentication",
            r"not logged in",
            r"please run /login",
        ),
    ),
    (
        Fault.MODEL,
        _any(
            r"\b(500|502|503|504|529)\b",
            r"overloaded",
            r"internal server error",
            r"bad gateway",
            r"service unavailable",
            r"model.{0,120}(not found|(does|may) not exist|not supported)",
        ),
    ),
    (
        Fault.NETWORK,
        _any(
            r"\b(ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENOTFOUND)\b",
            r"connection (error|refused|reset|timed out)",
            r"fetch failed",
            r"error sending request",
            r"stream disconnected",
        ),
    ),
)
_MISSING = _any(r"(?:^|\s|: )(\S+): (?:command )?not found", r"cannot execute (\S+?):?(?: |$)")


def fault_of_check(exit_code: int, said: str, *, program: str, has_answered: bool) -> Fault:
    """Of a check that has not passed. `program` is the first word of its command."""
    end = said[-_END:]
    if exit_code in _NOT_STARTED:
        return Fault.CODE if _is_to_be_made(program, end, exit_code) else Fault.COMMAND
    for fault, words in _SURE:
        if words.search(end):
            return fault
    return Fault.CODE if has_answered else Fault.UNKNOWN


def fault_of_agent(why: str) -> Fault | None:
    """Of an agent that has ended badly; None where it does not say that somebody else did it."""
    for fault, words in (*_SURE, *_OF_AGENTS):
        if words.search(why[-_END:]):
            return fault
    return None


def _is_to_be_made(program: str, said: str, exit_code: int) -> bool:
    """A program in the workspace is one that the agent has to write, and to make executable."""
    lines = said.strip().splitlines()
    found = _MISSING.search(lines[-1]) if lines else None
    missing = next((each for each in found.groups() if each), "") if found else program
    is_there = exit_code == _NOT_STARTED[0]
    return _is_in_workspace(missing) or (is_there and _is_in_workspace(program))


def _is_in_workspace(program: str) -> bool:
    return "/" in program and not program.startswith("/")
