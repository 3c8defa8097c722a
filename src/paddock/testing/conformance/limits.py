"""Limits: what was asked for is what is had, and no more."""

import math
import time

from paddock.domain.errors import InvalidRequest, LimitExceeded
from paddock.domain.reason import Reason
from paddock.ports.provider import Capabilities
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check, isolated
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.refusals import admits_that_nothing_is_fenced, refuses
from paddock.testing.conformance.subject import Box, Subject

_BURN_S = 1.5


@check(proves=("P13", "E10"), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def memory_beyond_the_limit_ends_with_oom(subject: Subject) -> None:
    """A command that takes too much memory ends with 137 and the reason; the sandbox goes on."""
    async with subject.sandbox() as box:
        much = 3 * subject.terms.limits.memory_mib
        result = await box.python(probes.EAT_MEMORY, str(much))
        same((result.exit_code, result.reason), (137, Reason.OOM), "how the greedy command ended")
        same(await box.say("echo on"), "on", "a command after it")


@check(proves=("P13", "P10"), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def a_fork_bomb_is_contained(subject: Subject) -> None:
    """No more processes than the limit can be had, and the sandbox takes commands afterwards."""
    most = subject.terms.limits.pids
    async with subject.sandbox() as box:
        had = int(await box.tell(probes.FORK_BOMB, str(2 * most)))
        expect(had <= most, f"{had} processes were had where {most} is the limit")
        expect(had > 0, "not a single process could be forked")
        same(await box.say("echo on"), "on", "a command after the bomb")


@check(proves=("P13",), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def processor_time_is_limited(subject: Subject) -> None:
    """Busy processes together get no more processor time than was asked for."""
    cpus = subject.terms.limits.cpus
    async with subject.sandbox() as box:
        burners = math.ceil(cpus) * 2
        before = await _cpu_seconds(subject, box)
        used = float(await box.tell(probes.BURN, str(burners), str(_BURN_S)))
        if before is not None:  # a kernel of one's own only estimates what it was given
            used = (await _cpu_seconds(subject, box) or 0) - before
        # A scheduler's period may be begun or ended twice; nobody gets twice as much for long.
        most = 1.5 * cpus * _BURN_S + 0.2
        expect(used <= most, f"{used:.2f} s of {cpus:g} processors were had in {_BURN_S} s")


async def _cpu_seconds(subject: Subject, box: Box) -> float | None:
    """As the provider counts them, who is not inside."""
    if not subject.capabilities.metrics:
        return None
    return (await subject.provider.usage(box.ref)).cpu_seconds


def _limits_the_disk(capabilities: Capabilities) -> bool:
    return capabilities.disk_limit


async def reports_the_disk_instead(subject: Subject) -> None:
    """Where the file system does not enforce it, somebody must be able to watch it."""
    if not subject.capabilities.metrics:
        await admits_that_nothing_is_fenced(subject)
        return
    async with subject.sandbox() as box:
        before = (await subject.provider.usage(box.ref)).disk_bytes
        expect(before is not None, "usage() does not say how much disk is used")
        await box.say("dd if=/dev/urandom of=file bs=1M count=8 2>/dev/null && sync")
        after = (await subject.provider.usage(box.ref)).disk_bytes
        expect((after or 0) >= (before or 0) + (4 << 20), f"usage() says {before}, then {after}")


@check(proves=("P13",), deadline_s=120, when=_limits_the_disk, otherwise=reports_the_disk_instead)
async def the_disk_is_limited_or_at_least_watched(subject: Subject) -> None:
    """No more can be written than the limit, and space comes back; or else usage() shows it."""
    most = subject.terms.limits.disk_mib
    async with subject.sandbox() as box:
        for attempt in ("first", "second"):
            written = int(await box.tell(probes.FILL_DISK, "big", str(most * 5 // 4)))
            expect(written <= most, f"{written} MiB were written where {most} MiB is the limit")
            # Less than half would mean that what was removed is still counted.
            expect(
                written >= most // 2, f"only {written} MiB of {most} could be had, {attempt} time"
            )
        same(await box.say("echo on"), "on", "a command on a disk that was full")


def _measures(capabilities: Capabilities) -> bool:
    return capabilities.metrics


@check(
    when=_measures,
    otherwise=refuses(usage=lambda subject, ref: subject.provider.usage(ref)),
)
async def usage_is_measured(subject: Subject) -> None:
    """Processor time grows with work, memory and processes are counted."""
    async with subject.sandbox() as box:
        before = await subject.provider.usage(box.ref)
        expect(before.cpu_seconds is not None, "usage() knows no processor time")
        expect((before.memory_bytes or 0) > 0, f"memory_bytes is {before.memory_bytes}")
        await box.tell(probes.BURN, "1", "0.5")
        after = await subject.provider.usage(box.ref)
        grown = (after.cpu_seconds or 0) - (before.cpu_seconds or 0)
        expect(grown > 0.05, f"0.5 s of work show as {grown:.3f} s of processor time")


def _expires(capabilities: Capabilities) -> bool:
    return capabilities.expires_itself


@check(
    proves=("P4", "P13"),
    when=_expires,
    otherwise=refuses(renew=lambda subject, ref: subject.provider.renew(ref, time.time() + 60)),
)
async def a_lifetime_is_renewed_within_its_maximum(subject: Subject) -> None:
    """renew() keeps a sandbox alive, and refuses to promise more than the longest lifetime."""
    async with subject.sandbox() as box:
        seen = await subject.provider.renew(box.ref, time.time() + 120)
        same((seen.ref, seen.state), (box.ref, box.seen.state), "the sandbox after renew()")
        longest = subject.capabilities.max_lifetime_s
        if longest is None:
            await subject.provider.renew(box.ref, time.time() + 30 * 86_400)
        else:
            beyond = subject.provider.renew(box.ref, time.time() + 2 * longest)
            await refused(beyond, (LimitExceeded, InvalidRequest), f"more than {longest:g} s")
        same(await box.say("echo on"), "on", "a command after renew()")
