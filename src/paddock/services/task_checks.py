"""Checks of what an agent made, and the result that they are part of."""

import time
from collections.abc import Mapping
from typing import Any

from paddock.domain.app_verdict import health_again
from paddock.domain.broker.masking import NO_MASK, Mask
from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.guest import CommandResult
from paddock.domain.reason import Reason
from paddock.domain.task import FileChange, Result, TaskRecord
from paddock.domain.task_rounds import (
    NOT_RUN,
    OUT_OF_TIME,
    SKIPPED,
    Checked,
    CheckState,
    checked_again,
    not_run,
)
from paddock.domain.task_wish import Check, When
from paddock.ports.clock import Clock
from paddock.services.transfers import TransferGuest

_MOST_OUTPUT = 8 << 20
_SHOWN = 8 << 10
_ANSWERS = (Reason.EXITED, Reason.CRASHED)
"""It ended by what it did itself."""


async def run_checks(
    guest: TransferGuest, task: TaskRecord, mask: Mask = NO_MASK, *, clock: Clock
) -> list[Checked]:
    """One after the other, all of them: who reads the result wants to know each. What takes long
    is run when all others have passed. The task's own time is theirs too: what is cut by it, or
    has none left, gave no answer; what had ended before stays what it was."""
    found: dict[str, Checked] = {}
    for when in (When.ROUND, When.END):
        is_worth_it = all(each.is_good for each in found.values())
        for check in (each for each in task.wish.checks if each.when is when):
            found[check.name] = Checked(check.name, NOT_RUN, why=SKIPPED)
            if is_worth_it:
                time_s = _time_for(check, task, clock)
                found[check.name] = await _run(guest, task, check, mask, time_s=time_s)
    return [found[check.name] for check in task.wish.checks]


def _time_for(check: Check, task: TaskRecord, clock: Clock) -> float:
    if task.deadline is None:
        return check.timeout_s
    return min(check.timeout_s, task.deadline - clock.wall())


async def _run(
    guest: TransferGuest, task: TaskRecord, check: Check, mask: Mask, *, time_s: float
) -> Checked:
    if time_s <= 0:
        return Checked(check.name, NOT_RUN, why=f"{OUT_OF_TIME} before it was run")
    began = time.monotonic()
    try:
        ran = await guest.exec(
            check.cmd,
            cwd=task.directory,
            env=task.wish.env,
            timeout=time_s,
            max_output=_MOST_OUTPUT,
        )
    except PaddockError as error:
        # Of the sandbox: whoever moves the task on looks whether it can be had again.
        if error.exit_code is None and (error.retryable or isinstance(error, Conflict)):
            raise
        code = NOT_RUN if error.exit_code is None else error.exit_code
        why = f"it could not be started: {error.message}"
        return Checked(check.name, code, seconds=_since(began), why=why)
    said, state, why = _said(ran, mask), CheckState.UNKNOWN, ""
    if ran.reason in _ANSWERS:
        state = CheckState.FAILED if ran.exit_code else CheckState.PASSED
    elif ran.reason is Reason.DEADLINE:
        why = f"it was not over after {check.timeout_s:g} s"
        if time_s < check.timeout_s:
            why = f"{OUT_OF_TIME} {time_s:.1f} s after it began, and it was not over"
    else:
        why = f"it was ended from outside: {ran.reason}"
    return Checked(check.name, ran.exit_code, said, _since(began), state, why)


def _said(ran: CommandResult, mask: Mask) -> str:
    text = mask.text((ran.stdout + ran.stderr).decode("utf-8", "replace"))[-_SHOWN:]
    cut = f"(it said more than {_MOST_OUTPUT} bytes; this is not the end of it)\n"
    return cut + text if ran.truncated else text


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def result_of(task: TaskRecord, got: dict[str, Any], last: Mapping[str, Any]) -> Result:
    """Of what the journal has."""
    found = [checked_again(each) for each in last.get("checks", ())]
    health = last.get("health")
    return Result(
        files=tuple(FileChange(**each) for each in got.get("files", ())),
        checks=not_run(task.wish.checks, found, "the task ended before it was run"),
        health=health_again(health) if health else None,
        commit=got.get("commit", ""),
        unseen=got.get("unseen", ""),
    )
