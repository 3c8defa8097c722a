"""How a program's end is told in SSH: its exit status, or the signal that killed it."""

import signal
from dataclasses import dataclass

from paddock.guest_client.commands import Ended

FAILED = 255
"""What `ssh` itself exits with when something other than the program is at fault."""
_TOLD = "signal: "
_NAMES = {
    text.lower(): each.name.removeprefix("SIG")
    for each in signal.Signals
    if (text := signal.strsignal(each))
}
_OF_SSH = frozenset("ABRT ALRM FPE HUP ILL INT KILL PIPE QUIT SEGV TERM USR1 USR2".split())


@dataclass(frozen=True, slots=True)
class Ending:
    """One of both."""

    status: int = 0
    signal: str = ""


def ending_of(ended: Ended) -> Ending:
    """The guest tells of signals in words, as Go does: `signal: segmentation fault`."""
    if ended.exited or not ended.status.startswith(_TOLD):
        return Ending(status=ended.exit_code & 0xFF)
    name = _NAMES.get(ended.status.removeprefix(_TOLD), "")
    if not name:
        return Ending(status=FAILED)
    return Ending(signal=name if name in _OF_SSH else f"{name}@paddock")
