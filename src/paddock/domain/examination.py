"""Finding out why a task is stuck: when it is looked at, and what is read from what is found.

stuck ──> looked at, once in a while ──> after so many times, a person is asked
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from paddock.domain.task import TaskRecord
from paddock.domain.vitals import Standing, Thresholds, diagnose

MOST_PROCESSES = 40
MOST_LINES = 20
LONGEST_LINE = 300
_TICKS = 100.0
_TCP = ("", "established", "syn_sent", "syn_recv", "fin_wait1", "fin_wait2", "time_wait", "close")
_TCP_MORE = ("close_wait", "last_ack", "listen", "closing")
SCRIPT = r"""
for d in /proc/[0-9]*; do
  s=$(cat "$d/stat" 2>/dev/null) || continue
  printf 'process\037%s\037%s\037%s\n' "$s" "$(cat "$d/wchan" 2>/dev/null)" \
    "$(tr '\0\n' '  ' <"$d/cmdline" 2>/dev/null | cut -c1-300)"
done | head -n 200
sed -n 's/^\(MemTotal\|MemAvailable\): */memory\x1f\1\x1f/p' /proc/meminfo
df -Pk "$1" /tmp 2>/dev/null | sed -n '2,$s/^/disk\x1f/p'
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | sed -n '/:/s/^/tcp\x1f/p' | head -n 100
"""
"""For any POSIX shell. It reads no environment and no file of a user."""


class Look(StrEnum):
    """What is to be done about a task that may be stuck."""

    NONE = "none"
    EXAMINE = "examine"
    ASK = "ask"


def next_look(task: TaskRecord, now: float, thresholds: Thresholds) -> tuple[Look, str]:
    """And why. Not again before the cooldown is over, and only so many times."""
    if task.vitals is None or not thresholds.most_diagnoses:
        return Look.NONE, ""
    found = diagnose(task.vitals, now, thresholds)
    if found.standing is not Standing.STUCK:
        return Look.NONE, ""
    if task.diagnoses and now - task.diagnoses[-1] < thresholds.diagnose_cooldown_s:
        return Look.NONE, ""
    if len(task.diagnoses) >= thresholds.most_diagnoses:
        return Look.ASK, found.why
    return Look.EXAMINE, found.why


@dataclass(frozen=True, slots=True)
class Process:
    """One of a sandbox's."""

    pid: int
    parent: int
    state: str
    """As the kernel has it: R runs, S sleeps, D waits for a disk, Z is dead."""
    cpu_s: float
    waits_in: str
    """The kernel's function, where it says so."""
    command: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found."""

    at: float
    why: str
    """It was looked for."""
    processes: tuple[Process, ...] = ()
    connections: tuple[str, ...] = ()
    """That are open, or being opened."""
    refused: tuple[str, ...] = ()
    """Hosts that its sandbox was not let to, lately."""
    memory_mib: Mapping[str, float] = field(default_factory=dict)
    disks: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """The last that its agent said or did."""
    questions: tuple[str, ...] = ()
    """That wait for a person."""
    missing: tuple[str, ...] = ()
    """What could not be found out, and why."""

    @property
    def data(self) -> dict[str, Any]:
        return asdict(self)


def read_inside(text: str) -> dict[str, Any]:
    """What the script told. Whatever cannot be read is left out: a sandbox may say anything."""
    processes, connections, disks = [], [], []
    memory: dict[str, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition("\x1f")
        if kind == "process" and (process := _process(rest)) is not None:
            processes.append(process)
        elif kind == "memory":
            name, _, amount = rest.partition("\x1f")
            _note_memory(memory, name, amount)
        elif kind == "disk" and len(words := rest.split()) >= 6:
            disks.append(f"{words[5][:80]}: {words[4]} of {_mib(words[1])} used")
        elif kind == "tcp" and (shown := _connection(rest)):
            connections.append(shown)
    if memory.get("available") == memory.get("total"):
        memory.pop("available", None)  # a file that only shows the limit knows nothing of use
    return {
        "processes": _busiest(processes),
        "memory_mib": memory,
        "disks": tuple(dict.fromkeys(disks)),
        "connections": tuple(dict.fromkeys(connections))[:MOST_LINES],
    }


def _process(text: str) -> Process | None:
    stat, _, rest = text.partition("\x1f")
    waits_in, _, command = rest.partition("\x1f")
    pid, _, behind = stat.partition(" (")
    name, _, numbers = behind.rpartition(") ")
    words = numbers.split()
    try:
        used = (int(words[11]) + int(words[12])) / _TICKS
        parent = int(words[1])
        shown = (command.strip() or f"[{name}]")[:LONGEST_LINE]
        return Process(int(pid), parent, words[0], used, waits_in.strip("0 ")[:40], shown)
    except (ValueError, IndexError):
        return None


def _busiest(found: Sequence[Process]) -> tuple[Process, ...]:
    """In the order of their numbers; of too many, those that used the most."""
    most = sorted(found, key=lambda each: each.cpu_s, reverse=True)[:MOST_PROCESSES]
    return tuple(sorted(most, key=lambda each: each.pid))


def _note_memory(memory: dict[str, float], name: str, amount: str) -> None:
    if (number := amount.partition(" ")[0]).isdigit():
        memory["total" if name == "MemTotal" else "available"] = round(int(number) / 1024, 1)


def _mib(kib: str) -> str:
    return f"{int(kib) // 1024} MiB" if kib.isdigit() else "?"


def _connection(line: str) -> str:
    words = line.split()
    try:
        state = (*_TCP, *_TCP_MORE)[int(words[3], 16)]
        address, port = words[2].rsplit(":", 1)
        remote = f"{_address(address)}:{int(port, 16)}"
    except (ValueError, IndexError):
        return ""
    return f"{state} {remote}" if state in ("established", "syn_sent", "close_wait") else ""


def _address(text: str) -> str:
    """As the kernel writes it: words of four bytes, each the wrong way round."""
    groups = [text[at : at + 8] for at in range(0, len(text), 8)]
    octets = [b for group in groups for b in reversed(bytes.fromhex(group))]
    if len(octets) == 16 and octets[:10] == [0] * 10:
        octets = octets[12:]
    if len(octets) == 4:
        return ".".join(map(str, octets))
    pairs = [f"{octets[at] << 8 | octets[at + 1]:x}" for at in range(0, len(octets), 2)]
    return f"[{':'.join(pairs)}]"
