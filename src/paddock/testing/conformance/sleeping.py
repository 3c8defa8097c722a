"""Files of a sandbox that sleeps: read from outside, while it goes on sleeping."""

from paddock.domain.errors import Conflict, Forbidden, NotFound, Unavailable
from paddock.domain.ids import new_ulid
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Capabilities, Observation
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check, isolated
from paddock.testing.conformance.expect import refused, same
from paddock.testing.conformance.outside import processes_here
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Subject


def _shows(capabilities: Capabilities) -> bool:
    return capabilities.sleeping_disk


refuses_to_show = refuses(open_disk=lambda subject, ref: subject.provider.open_disk(ref))


async def _look(subject: Subject, asleep: Observation, home: str) -> None:
    """Whatever can be read is, and nothing else can be done."""
    provider, ref = subject.provider, asleep.ref
    disk = await provider.open_disk(ref)
    try:
        async with subject.terms.connect(disk.address) as guest:
            same(await guest.files.read(f"{home}/looked/one"), b"one\n", "a file")
            names = [entry.name for entry in await guest.files.list(f"{home}/looked", depth=3)]
            same(names, ["in", "deep", "link", "one"], "a listing")
            same((await guest.files.stat(f"{home}/looked/one")).size, 4, "the size of a file")
            await refused(guest.files.read(f"{home}/looked/none"), NotFound, "an absent file")
            change = guest.files.write(f"{home}/looked/one", b"changed")
            await refused(change, Forbidden, "writing to what is shown")
            await refused(guest.files.remove(f"{home}/looked/one"), Forbidden, "removing it")
            same(await provider.observe(ref), asleep, "the sandbox while it is looked at")
    finally:
        await disk.aclose()
    same(await provider.observe(ref), asleep, "the sandbox after it was looked at")


@check(proves=("S11",), deadline_s=120, when=_shows, otherwise=refuses_to_show)
async def the_disk_of_a_sleeping_sandbox_is_read_and_nothing_wakes(subject: Subject) -> None:
    """Files, listings and sizes are those of its own guest; writing is refused; it sleeps on."""
    marker = f"marker-{new_ulid()}"
    provider = subject.provider
    async with subject.sandbox() as box:
        home = (await box.run("pwd")).text.strip()
        await box.say("mkdir -p looked/in/deep; echo one > looked/one; ln -s one looked/link")
        await box.tell(probes.DAEMON_OF, marker, probes.SLEEP)
        if subject.capabilities.pause:
            await _look(subject, await provider.pause(box.ref), home)
            await provider.resume(box.ref)
        await _look(subject, await provider.stop(box.ref), home)
        same(processes_here(marker), [], "processes of a sandbox that was looked at")
        started = await provider.start(box.ref)
        async with subject.reached(started) as again:
            same(await again.say("cat looked/one; ls looked"), "one\nin\nlink\none", "the disk")


@check(proves=("S11",), deadline_s=120, when=_shows, otherwise=refuses_to_show)
async def a_look_at_a_disk_holds_nobody_up(subject: Subject) -> None:
    """start() and destroy() do not wait; running and archived ones are Conflict."""
    provider = subject.provider
    async with subject.sandbox() as box:
        home = (await box.run("pwd")).text.strip()
        await box.say("echo before > work")
        await refused(provider.open_disk(box.ref), Conflict, "open_disk() of a running sandbox")
        await provider.stop(box.ref)
        disk = await provider.open_disk(box.ref)
        started = await provider.start(box.ref)
        same(started.state, SandboxState.RUNNING, "the state after start()")
        async with subject.terms.connect(disk.address) as guest:
            await refused(guest.files.read(f"{home}/work"), Unavailable, "a look after start()")
        await disk.aclose()
        await disk.aclose()
        async with subject.reached(started) as again:
            same(await again.say("echo after >> work; cat work"), "before\nafter", "the disk")
        await provider.stop(box.ref)
        if subject.capabilities.archive:
            disk = await provider.open_disk(box.ref)
            await provider.archive(box.ref)
            await refused(provider.open_disk(box.ref), Conflict, "open_disk() of an archived one")
            await disk.aclose()
            await provider.start(box.ref)
            await provider.stop(box.ref)
        disk = await provider.open_disk(box.ref)
        await provider.destroy(box.ref)
        same(await subject.mine(), [], "find() after destroy()")
        await disk.aclose()
        if isolated(subject.capabilities):
            await refused(provider.open_disk(box.ref), NotFound, "open_disk() after destroy()")
