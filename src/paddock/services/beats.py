"""Signs of life of the processes that move tasks on, for who looks after the installation."""

import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paddock.ports.store import Transaction

_NAME = "worker."
REMEMBERED_S = 86400.0
"""One that fell silent is shown for so long."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One process, when it last said something."""

    name: str
    host: str
    pid: int
    version: str
    since: float
    at: float
    tasks: int
    """That it is at."""
    most: int


def begun(name: str, version: str, now: float, most: int) -> Beat:
    return Beat(name, socket.gethostname(), os.getpid(), version, now, now, 0, most)


def note_beat(tx: Transaction, beat: Beat) -> None:
    tx.values.put(f"{_NAME}{beat.name}", asdict(beat))


def forget_beat(tx: Transaction, name: str) -> None:
    tx.values.remove(f"{_NAME}{name}")


def beats(tx: Transaction) -> Sequence[Beat]:
    """The latest first."""
    kept: Sequence[Any] = list(tx.values.all(_NAME).values())
    found = [Beat(**each) for each in kept]
    return sorted(found, key=lambda beat: beat.at, reverse=True)


def forget_silent(tx: Transaction, before: float) -> None:
    for beat in beats(tx):
        if beat.at < before:
            forget_beat(tx, beat.name)
