"""Archiving: the disk becomes a compressed copy, and everything on it comes back."""

from collections.abc import Awaitable, Callable
from typing import Any

from paddock.domain.errors import Conflict, NotFound, Unsupported
from paddock.domain.sandbox import SandboxState
from paddock.ports.provider import Capabilities, Ref
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check, isolated
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Box, Subject

_ARCHIVED = SandboxState.ARCHIVED


def _can_archive(capabilities: Capabilities) -> bool:
    return capabilities.archive


refuses_to_archive = refuses(archive=lambda subject, ref: subject.provider.archive(ref))


def _as_owner(subject: Subject) -> dict[str, Any]:
    """Root owns the files of a template. Without a fence there are none but the host's own."""
    return {"user": "root"} if isolated(subject.capabilities) else {}


async def _disk(subject: Subject, box: Box) -> str:
    """Everything about the tree, and whether the template's file is there."""
    return await box.tell(probes.TREE_LISTED, "tree", **_as_owner(subject))


async def _bytes(subject: Subject, ref: Ref) -> int | None:
    if not subject.capabilities.metrics:
        return None
    return (await subject.provider.usage(ref)).disk_bytes


@check(proves=("L4",), deadline_s=180, when=_can_archive, otherwise=refuses_to_archive)
async def an_archived_sandbox_starts_again_with_everything_on_its_disk(subject: Subject) -> None:
    """Modes, owners, times, links, holes, attributes and removals survive, and room is gained."""
    fenced = isolated(subject.capabilities)
    async with subject.sandbox(env={"KEPT": "yes"}, labels={"role": "kept"}) as box:
        await box.tell(probes.TREE_MADE, "tree", "template" if fenced else "", **_as_owner(subject))
        before = await _disk(subject, box)
        expect("sparse" in before, "the tree was not made")
        expect(not fenced or "template False" in before, "a file of the template was not removed")
        await subject.provider.stop(box.ref)
        taken = await _bytes(subject, box.ref)
        archived = await subject.provider.archive(box.ref)
        same((archived.state, archived.ref), (_ARCHIVED, box.ref), "the sandbox after archive()")
        left = await _bytes(subject, box.ref)
        if taken is not None and left is not None:
            expect(left < taken, f"the disk takes {left} bytes archived and {taken} before")
        await subject.restart()
        same(await subject.mine(role="kept"), [archived], "find() after a restart")
        started = await subject.provider.start(box.ref)
        same((started.state, started.ref), (box.seen.state, box.ref), "the sandbox after start()")
        same(started.resources, box.seen.resources, "the limits after start()")
        async with subject.reached(started) as again:
            after = await _disk(subject, again)
            lines = zip(before.splitlines(), after.splitlines(), strict=False)
            same(next((pair for pair in lines if pair[0] != pair[1]), None), None, "what differs")
            same(len(after), len(before), "the length of the list of files")
            same(await again.say("echo $KEPT; echo on > file; cat file"), "yes\non", "a command")


async def refuses_to_archive_what_is_stopped(subject: Subject) -> None:
    async with subject.sandbox() as box:
        await box.say("echo kept > kept")
        before = box.seen
        if subject.capabilities.stop:
            before = await subject.provider.stop(box.ref)
        await refused(subject.provider.archive(box.ref), Unsupported, "archive()")
        same(await subject.provider.observe(box.ref), before, "the sandbox after a refusal")
        if subject.capabilities.stop:
            before = await subject.provider.start(box.ref)
        async with subject.reached(before) as again:
            same(await again.say("cat kept"), "kept", "the disk after a refusal")


@check(when=_can_archive, otherwise=refuses_to_archive_what_is_stopped)
async def archiving_can_be_repeated_and_is_for_what_is_stopped(subject: Subject) -> None:
    """A running or paused sandbox is Conflict and goes on; an archived one is success."""
    async with subject.sandbox() as box:
        await box.say("echo work > work")
        await refused(subject.provider.archive(box.ref), Conflict, "archive() of a running one")
        same(await box.say("cat work"), "work", "a command after that")
        if subject.capabilities.pause:
            await subject.provider.pause(box.ref)
            await refused(subject.provider.archive(box.ref), Conflict, "archive() of a paused one")
            await subject.provider.resume(box.ref)
        for round_ in ("first", "second"):
            await subject.provider.stop(box.ref)
            archived = await subject.provider.archive(box.ref)
            same(archived.state, _ARCHIVED, f"the state after the {round_} archive()")
            same(await subject.provider.archive(box.ref), archived, "archive() of an archived one")
            started = await subject.provider.start(box.ref)
            async with subject.reached(started) as again:
                same(await again.say("cat work"), "work", f"the disk, {round_} time")


def _uses(subject: Subject, ref: Ref) -> dict[str, Callable[[], Awaitable[object]]]:
    """What cannot be done with an archived sandbox."""
    provider = subject.provider
    uses: dict[str, Callable[[], Awaitable[object]]] = {
        "guest": lambda: provider.guest(ref),
        "endpoint": lambda: provider.endpoint(ref, 8000),
        "stop": lambda: provider.stop(ref),
    }
    if subject.capabilities.snapshot:
        uses["snapshot"] = lambda: subject.snapshot(ref)
    if subject.capabilities.fork:
        fork = subject.spec(template="")
        uses["fork"] = lambda: provider.fork(ref, subject.key(), fork)
    return uses


@check(proves=("L5",), when=_can_archive, otherwise=refuses_to_archive)
async def an_archived_sandbox_takes_nothing_but_start_and_destroy(subject: Subject) -> None:
    """What needs a machine or a disk is Conflict, and says what to do; destroy() leaves nothing."""
    key, spec = subject.key(), subject.spec(ports=(8000,))
    seen = await subject.create(key, spec)
    provider, ref = subject.provider, seen.ref
    await provider.stop(ref)
    archived = await provider.archive(ref)
    for name, use in _uses(subject, ref).items():
        error = await refused(use(), Conflict, f"{name}() of an archived sandbox")
        expect("start" in error.remediation, f"{name}() does not say that it can be started")
    same(await provider.observe(ref), archived, "the sandbox after that")
    same(await subject.create(key, spec), archived, "create() with its key")
    await provider.destroy(ref)
    same(await subject.mine(), [], "find() after destroy()")
    await refused(provider.observe(ref), NotFound, "observe() after destroy()")
