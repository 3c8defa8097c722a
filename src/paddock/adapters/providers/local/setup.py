"""A template's set-up commands, run in a sandbox of their own whose volume is then kept."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.local.life import Life
from paddock.adapters.providers.local.plan import Plan
from paddock.adapters.providers.local.storage.volumes import draft_name
from paddock.domain.egress import EgressPolicy
from paddock.domain.errors import Refused
from paddock.domain.sandbox import Resources
from paddock.guest_client import Guest

_TIMEOUT_S = 1800.0
_LAST_LINES = 20


async def run_setup(
    life: Life,
    plan: Plan,
    commands: Sequence[str],
    progress: Callable[[str, float | None], None],
    egress: EgressPolicy,
) -> Path:
    """The volume after the commands; the caller takes it over. On failure nothing is left."""
    resources = Resources(cpus=2.0, memory_mib=4096, disk_mib=20480, pids=4096)
    draft = replace(life.draft(plan, resources), egress=egress)
    async with life.locks.hold(draft.ref):
        record = await life.make(life.records.write(draft), plan)
        try:
            async with Guest(life.machines.address(record)) as guest:
                for number, command in enumerate(commands):
                    progress(f"set-up: {command}", number / len(commands))
                    await _run(guest, command)
            await life.ask_to_finish(record)
            await life.machines.end(record)
            await life.disconnect(record)
            kept = life.volume(record.ref).with_name(draft_name())
            life.volume(record.ref).rename(kept)
        finally:
            await uncancelled(life.unmake(record))
    return kept


async def _run(guest: Guest, command: str) -> None:
    result = await guest.exec(["/bin/sh", "-ec", command], user="root", timeout=_TIMEOUT_S)
    if result.exit_code != 0:
        output = (result.stdout + result.stderr).decode(errors="replace").splitlines()
        raise Refused(
            f"set-up command {command!r} ended with {result.exit_code} ({result.reason})",
            remediation="its last lines:\n    " + "\n    ".join(output[-_LAST_LINES:]),
        )
