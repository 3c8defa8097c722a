"""From an error to what stderr says and to the exit code: the one table of this interface."""

import itertools
import json
import logging
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

from paddock.domain import errors
from paddock.domain.errors import InvalidRequest, PaddockError
from paddock.interfaces.cli.invocation import Invocation

_log = logging.getLogger(__name__)

FAILED = 1
USAGE = 2
DEADLINE = 124
INTERRUPTED = 130

# Exit codes of commands are passed on, so any number can be a command's. Those of our own are kept
# to few; 126 and 127 are the shell's for a program that was not started, and come with the error.
EXIT_CODES: Mapping[type[PaddockError], int] = {
    errors.InvalidRequest: USAGE,
    errors.NotFound: FAILED,
    errors.Conflict: FAILED,
    errors.Unauthenticated: FAILED,
    errors.Forbidden: FAILED,
    errors.ApprovalRequired: FAILED,
    errors.LimitExceeded: FAILED,
    errors.QuotaExceeded: FAILED,
    errors.TooLarge: FAILED,
    errors.Unsupported: FAILED,
    errors.TimedOut: DEADLINE,
    errors.Unavailable: FAILED,
    errors.Refused: FAILED,
    errors.Broken: FAILED,
}


# What the caller can put right alone; of everything else the server's log has more.
_CALLERS_OWN = (
    errors.InvalidRequest,
    errors.NotFound,
    errors.Conflict,
    errors.Unauthenticated,
    errors.Forbidden,
    errors.LimitExceeded,
    errors.Unsupported,
)


class Interrupted(Exception):
    """A signal ended the command; everything was cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by signal {number}")
        self.exit_code = 128 + number


class ReaderLeft(Interrupted):
    """Nobody reads our output any more: what SIGPIPE says to other programs."""

    def __init__(self) -> None:
        super().__init__(signal.SIGPIPE)


def fail(error: BaseException, invocation: Invocation, arguments: Sequence[str]) -> int:
    """Say what went wrong; the exit code."""
    match error:
        case Interrupted():
            return error.exit_code
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case SystemExit(code=int(code)):
            return code
        case click.ClickException():
            return _misused(error, as_json=invocation.json or _asks_for_json(arguments))
        case PaddockError():
            return say(error, as_json=invocation.json)
    return say(_unexpected(error), as_json=invocation.json)


def say(error: PaddockError, *, as_json: bool) -> int:
    """On stderr, because stdout belongs to results; the exit code is the same in both forms."""
    if as_json:
        named = {"request_id": error.request_id} if error.request_id else {}
        click.echo(json.dumps({"error": {**error.as_dict(), **named}}), err=True)
    else:
        click.echo(f"{click.style('error:', fg='red')} {error.message}", err=True)
        if error.remediation:
            click.echo(f"  {click.style('fix:', fg='green')} {error.remediation}", err=True)
        if error.request_id and not isinstance(error, _CALLERS_OWN):
            click.echo(f"  request: {error.request_id}, as the server's log has it", err=True)
    if error.exit_code is not None:
        return error.exit_code
    kinds = (kind for kind in type(error).__mro__ if kind in EXIT_CODES)
    return next((EXIT_CODES[kind] for kind in kinds), FAILED)


def refuse(message: str, remediation: str) -> NoReturn:
    raise InvalidRequest(message, remediation=remediation)


def _misused(error: click.ClickException, *, as_json: bool) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        click.echo(error.format_message(), err=True)
        return EXIT_CODES[InvalidRequest]
    return say(_from_click(error), as_json=as_json)


def _from_click(error: click.ClickException) -> PaddockError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "paddock"
    message = error.format_message().rstrip(".")
    return InvalidRequest(message, remediation=f"see `{path} --help`")


def _unexpected(error: BaseException) -> PaddockError:
    _log.debug("command failed", exc_info=error)
    return PaddockError(
        f"{type(error).__name__}: {error}",
        remediation="this should not happen; `paddock --log-level debug …` shows where it did",
    )


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for, also where the arguments could not be understood."""
    ours = list(arguments)
    ours = ours[: ours.index("--")] if "--" in ours else ours
    joined = {"--json", "-ojson", "-o=json", "--output=json"}
    pairs = itertools.pairwise(ours)
    return not joined.isdisjoint(ours) or any(
        option in ("-o", "--output") and value == "json" for option, value in pairs
    )
