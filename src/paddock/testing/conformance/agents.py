"""Agents of the host: every sandbox sees them, and none can change them."""

from pathlib import Path

from paddock.domain.agent import AGENTS
from paddock.domain.ids import new_ulid
from paddock.ports.provider import Capabilities
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, same
from paddock.testing.conformance.subject import Box, Subject

_ATTEMPTS = {
    "make a file": f"touch {AGENTS}/made",
    "change a mode": f"chmod 0777 {AGENTS}",
    "mount it anew": f"mount -o remount,bind,rw {AGENTS}",
}
_PROGRAM = "#!/bin/sh\necho works\n"


def _shows_agents(capabilities: Capabilities) -> bool:
    return capabilities.agents


async def shows_nothing(subject: Subject) -> None:
    """Who looks for an agent finds at once that there is none."""
    async with subject.sandbox() as box:
        tried = await box.sh(f"test -e {AGENTS}")
        same(tried.exit_code, 1, f"whether there is a {AGENTS} without the capability `agents`")


@check(when=_shows_agents, otherwise=shows_nothing)
async def agents_of_the_host_are_read_and_not_written(subject: Subject) -> None:
    """Not by root either, wherever a sandbox comes from; its user executes them."""
    async with subject.sandbox() as box:
        await _check_shown(subject, box)
        if subject.capabilities.stop:
            await subject.provider.stop(box.ref)
            async with subject.reached(await subject.provider.start(box.ref)) as again:
                await _check_shown(subject, again)
        if subject.capabilities.snapshot:
            shot = await subject.snapshot(box.ref)
            async with subject.sandbox(snapshot=shot.ref) as copy:
                await _check_shown(subject, copy)
        if subject.capabilities.fork:
            spec = subject.spec(template="")
            forked = subject.remember(await subject.provider.fork(box.ref, subject.key(), spec))
            async with subject.reached(forked) as fork:
                await _check_shown(subject, fork)


async def _check_shown(subject: Subject, box: Box) -> None:
    await box.say(f"test -d {AGENTS} && test -r {AGENTS} && test -x {AGENTS}")
    for what, attempt in _ATTEMPTS.items():
        tried = await box.sh(attempt, user="root")
        expect(tried.exit_code != 0, f"root in a sandbox could {what} in {AGENTS}")
    if subject.terms.agents is not None:
        await _check_news(box, subject.terms.agents / f"conformance-{new_ulid()}")


async def _check_news(box: Box, program: Path) -> None:
    """What is installed while it runs is there at once, and gone when it is removed."""
    inside = f"{AGENTS}/{program.name}"
    program.write_text(_PROGRAM)
    try:
        program.chmod(0o755)
        same(await box.say(inside), "works", "an agent that was installed just now")
        tried = await box.sh(f"rm -f {inside} || echo changed > {inside}", user="root")
        expect(tried.exit_code != 0, "root in a sandbox could change an agent of the host")
        same(program.read_text(), _PROGRAM, "the host's agent after that")
    finally:
        program.unlink(missing_ok=True)
    same((await box.sh(f"test -e {inside}")).exit_code, 1, "whether a removed one is still there")
