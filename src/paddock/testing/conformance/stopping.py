"""Stop and start: the machine ends, the disk stays."""

from paddock.domain.errors import Conflict
from paddock.domain.ids import new_ulid
from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Capabilities
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import refused, same
from paddock.testing.conformance.outside import processes_here
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Subject


def _can_stop(capabilities: Capabilities) -> bool:
    return capabilities.stop


refuses_to_stop = refuses(
    stop=lambda subject, ref: subject.provider.stop(ref),
    start=lambda subject, ref: subject.provider.start(ref),
)


@check(proves=("L4",), when=_can_stop, otherwise=refuses_to_stop)
async def a_stopped_sandbox_starts_again_with_its_disk_and_env(subject: Subject) -> None:
    """After stop() and start() the files and the environment are there; processes are not."""
    marker = f"marker-{new_ulid()}"
    async with subject.sandbox(env={"KEPT": "yes"}, labels={"role": "kept"}) as box:
        await box.say("echo work > work")
        await box.tell(probes.DAEMON_OF, marker, probes.SLEEP)
        stopped = await subject.provider.stop(box.ref)
        same(stopped.state, SandboxState.STOPPED, "the state after stop()")
        same(processes_here(marker), [], "processes of a stopped sandbox")
        same([seen.state for seen in await subject.mine(role="kept")], [stopped.state], "find()")
        started = await subject.provider.start(box.ref)
        same(started.state, SandboxState.RUNNING, "the state after start()")
        same(started.ref, box.ref, "the reference after start()")
        same(started.resources, box.seen.resources, "the limits after start()")
        async with subject.reached(started) as again:
            same(await again.say("cat work; echo $KEPT"), "work\nyes", "disk and environment")
            seen = await again.tell(probes.PROCESSES, marker)
            same(seen.split()[1:], [], "processes from before the stop")


@check(proves=("L4",), when=_can_stop, otherwise=refuses_to_stop)
async def stop_and_start_can_be_repeated(subject: Subject) -> None:
    """Stopping what is stopped and starting what runs is success and changes nothing."""
    async with subject.sandbox() as box:
        running = await subject.provider.start(box.ref)
        same(running.state, SandboxState.RUNNING, "the state after start() of a running one")
        same(await box.say("echo on"), "on", "a command after start() of a running one")
        stopped = await subject.provider.stop(box.ref)
        same(await subject.provider.stop(box.ref), stopped, "a second stop()")
        await subject.provider.start(box.ref)
        again = await subject.provider.start(box.ref)
        same(again.state, SandboxState.RUNNING, "the state after a second start()")


@check(proves=("P2", "L4"), when=_can_stop, otherwise=refuses_to_stop)
async def a_stopped_sandbox_says_why_and_takes_no_commands(subject: Subject) -> None:
    """The reason of a stop is kept until the next start; guest() and endpoint() are Conflict."""
    async with subject.sandbox(ports=(8000,)) as box:
        stopped = await subject.provider.stop(box.ref, Reason.IDLE)
        same(stopped.reason, Reason.IDLE, "the reason after stop()")
        seen = await subject.provider.observe(box.ref)
        same((seen.state, seen.reason), (SandboxState.STOPPED, Reason.IDLE), "observe()")
        await refused(subject.provider.guest(box.ref), Conflict, "guest() of a stopped sandbox")
        await refused(subject.provider.endpoint(box.ref, 8000), Conflict, "endpoint() of it")
        started = await subject.provider.start(box.ref)
        same(started.reason, None, "the reason once it runs again")


@check(proves=("L4", "L5"), when=_can_stop, otherwise=refuses_to_stop)
async def a_stopped_sandbox_outlives_a_restart_and_can_be_destroyed(subject: Subject) -> None:
    """A new instance finds it stopped, starts it with its disk, and destroys it stopped."""
    seen = await subject.create(subject.key(), subject.spec())
    async with subject.reached(seen) as box:
        await box.say("echo work > work")
    stopped = await subject.provider.stop(seen.ref)
    await subject.restart()
    same(await subject.mine(), [stopped], "find() after a restart")
    started = await subject.provider.start(seen.ref)
    async with subject.reached(started) as box:
        same(await box.say("cat work"), "work", "the disk")
    await subject.provider.stop(seen.ref)
    await subject.provider.destroy(seen.ref)
    same(await subject.mine(), [], "find() after destroy()")
