"""The calls about the sandbox as a whole: ports, usage, shutting down."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from typing import Callable

from . import connect, fields, ports
from .connect import Call, Message
from .errors import GuestError
from .state import GuestState
from .tree import snapshot

_DEFAULT_GRACE_MS = 5000
_SAMPLE = 0.05


async def list_ports(call: Call, message: Message) -> Message:
    own = {desk.port for desk in call.state.desks.values()}
    return {"ports": [each for each in ports.listening() if each["port"] not in own]}


async def usage(call: Call, message: Message) -> Message:
    """What is known; what cannot be known here is left out."""
    state = call.state
    disk = os.statvfs("/")
    pids = state.accounting.pids()
    found = {
        "cpuSeconds": state.accounting.cpu_seconds(),
        "memoryBytes": state.accounting.memory_bytes(),
        "memoryLimitBytes": state.accounting.memory_limit_bytes(),
        "pids": len(snapshot()) if pids is None else pids,
        "diskUsedBytes": (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
        "diskTotalBytes": disk.f_blocks * disk.f_frsize,
        "runningRuns": state.running_runs,
        "commands": len(state.live),
        "streams": state.streams,
        "lastActivityAt": state.last_activity,
        "defaultUser": state.default_account.name,
        "defaultUserMissing": state.accounts.find(state.default_user) != state.default_account,
    }
    return {name: value for name, value in found.items() if value is not None}


async def shutdown(call: Call, message: Message) -> Message:
    """Processes and runs end in good order; the guest itself stays and answers."""
    grace = fields.number(message, "graceMs", _DEFAULT_GRACE_MS) / 1000
    await call.state.shutdown(grace, fields.text(message, "reason", "cancelled"))
    return {}


async def let_go(call: Call, message: Message) -> Message:
    """Soon after this answer nobody listens, and nothing is held that is not the sandbox's own."""
    if call.state.let_go is None:
        raise GuestError("unimplemented", "this guest could not come back to where it listens")
    call.state.let_go()
    return {}


async def metrics(call: Call) -> None:
    """envd's own form of usage."""
    accounting = call.state.accounting
    before, began = accounting.cpu_seconds(), time.monotonic()
    await asyncio.sleep(_SAMPLE)
    after, ended = accounting.cpu_seconds(), time.monotonic()
    percent = 0.0
    if before is not None and after is not None:
        percent = 100 * (after - before) / (ended - began)
    memory = _meminfo()
    total = accounting.memory_limit_bytes() or memory.get("MemTotal", 0)
    used = accounting.memory_bytes()
    disk = os.statvfs("/")
    answer = {
        "ts": int(time.time()),
        "cpu_count": os.cpu_count() or 1,
        "cpu_used_pct": round(percent, 2),
        "mem_total": total,
        "mem_used": total - memory.get("MemAvailable", 0) if used is None else used,
        "mem_cache": memory.get("Cached", 0),
        "disk_used": (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
        "disk_total": disk.f_blocks * disk.f_frsize,
    }
    call.exchange.respond(200, connect.dump(answer), ("content-type", "application/json"))


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    return {
        "POST /paddock.Guest/ListPorts": connect.unary(list_ports),
        "POST /paddock.Guest/Usage": connect.unary(usage),
        "POST /paddock.Guest/Shutdown": connect.unary(shutdown),
        "POST /paddock.Guest/LetGo": connect.unary(let_go),
        "GET /metrics": metrics,
    }


def _meminfo() -> dict[str, int]:
    found = {}
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                found[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return found
