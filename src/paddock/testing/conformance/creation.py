"""Making a sandbox, finding it, and what is refused before anything is made."""

import time

from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound
from paddock.domain.ids import new_ulid
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.snapshot import SnapshotRef
from paddock.ports.provider import Capabilities, PauseKind, SandboxSpec
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.subject import LABEL, Subject

_A_DAY_S = 86_400
_MANY = 12
TOO_MUCH = (InvalidRequest, LimitExceeded)


@check(proves=("L1", "P1"))
async def a_new_sandbox_runs_and_its_guest_answers(subject: Subject) -> None:
    """create() returns a running sandbox that is what the spec says and takes commands."""
    key, spec = subject.key(), subject.spec(labels={"role": "first"})
    seen = await subject.create(key, spec)
    same(seen.state, SandboxState.RUNNING, "the state after create()")
    same(seen.reason, None, "the reason of a running sandbox")
    same(seen.ref.provider, subject.provider.name, "the provider in the reference")
    same(seen.key, key, "the key")
    same(seen.template, spec.template, "the template")
    same(dict(seen.labels), dict(spec.labels), "the labels")
    same(seen.resources, spec.resources, "the resources")
    expect(abs(seen.created_at - time.time()) < _A_DAY_S, f"created_at is {seen.created_at}")
    same(await subject.provider.observe(seen.ref), seen, "observe() right after create()")
    async with subject.reached(seen) as box:
        same(await box.say("echo hello"), "hello", "the first command's output")


@check(proves=("L1",))
async def the_environment_of_the_spec_reaches_every_command(subject: Subject) -> None:
    """Variables are there with exactly the value that was given, whatever is in it."""
    env = {
        "PLAIN": "yes",
        "EMPTY": "",
        "SPACES": " a  b ",
        "SHELL_SIGNS": "$HOME `id` \"'\\;&|*",
        "LINES": "one\ntwo",
        "EQUALS": "a=b=c",
        "UMLAUT_2": "größer ☃",
    }
    async with subject.sandbox(env=env) as box:
        result = await box.run("env", "-0")
        lines = result.stdout.decode().split("\0")
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        same({name: found.get(name) for name in env}, env, "the environment of a command")


@check(proves=("L7",))
async def an_unknown_template_is_not_found_and_nothing_is_made(subject: Subject) -> None:
    """create() with a template that does not exist raises NotFound and leaves nothing."""
    spec = subject.spec(template=f"no-such-template-{new_ulid()}")
    await refused(subject.provider.create(subject.key(), spec), NotFound, "an unknown template")
    same(await subject.mine(), [], "sandboxes after a refused creation")


@check(proves=("L7", "P13"))
async def impossible_limits_are_invalid_and_nothing_is_made(subject: Subject) -> None:
    """More memory or processors than any host has are refused at once, and not to be waited for."""
    for limits in (Resources(memory_mib=1 << 40), Resources(cpus=1e6)):
        spec = subject.spec(resources=limits)
        told = await refused(subject.provider.create(subject.key(), spec), TOO_MUCH, f"{limits}")
        expect(not told.retryable, f"{limits} can never be had, and {told.code} has others wait")
    same(await subject.mine(), [], "sandboxes after a refused creation")


@check(proves=("P1",))
async def sandboxes_are_found_by_all_of_their_labels(subject: Subject) -> None:
    """find() gives exactly the sandboxes that carry every label asked for."""
    one = await subject.create(subject.key(), subject.spec(labels={"colour": "red", "size": "l"}))
    two = await subject.create(subject.key(), subject.spec(labels={"colour": "red", "size": "s"}))

    async def found(**labels: str) -> set[str]:
        return {seen.ref.id for seen in await subject.mine(**labels)}

    both = {one.ref.id, two.ref.id}
    same(await found(), both, "by the label they share with nobody else")
    same(await found(colour="red"), both, "by a label both have")
    same(await found(size="l"), {one.ref.id}, "by a value only one has")
    same(await found(colour="red", size="s"), {two.ref.id}, "by two labels")
    same(await found(colour="red", size="xl"), set(), "by a value nobody has")
    same(await found(shape="round"), set(), "by a label nobody has")
    every = {seen.ref.id async for seen in subject.provider.find({})}
    expect(both <= every, "find() without labels does not list everything")
    (again,) = await subject.mine(size="l")
    same(again, await subject.provider.observe(one.ref), "find() and observe() of one sandbox")


@check(proves=("P2",))
async def an_absent_sandbox_is_not_found(subject: Subject) -> None:
    """Every method that takes a reference raises NotFound where there is no such sandbox."""
    provider, claimed, gone = subject.provider, subject.capabilities, subject.absent
    await refused(provider.observe(gone), NotFound, "observe()")
    await refused(provider.guest(gone), NotFound, "guest()")
    await refused(provider.endpoint(gone, 8000), NotFound, "endpoint()")
    if claimed.pause is not PauseKind.NO:
        await refused(provider.pause(gone), NotFound, "pause()")
        await refused(provider.resume(gone), NotFound, "resume()")
    if claimed.stop:
        await refused(provider.stop(gone), NotFound, "stop()")
        await refused(provider.start(gone), NotFound, "start()")
    if claimed.snapshot:
        await refused(provider.snapshot(gone, subject.key()), NotFound, "snapshot()")
        unknown = subject.spec(snapshot=SnapshotRef(provider.name, f"snp_{new_ulid()}"))
        await refused(provider.create(subject.key(), unknown), NotFound, "an unknown snapshot")
    if claimed.fork:
        fork = provider.fork(gone, subject.key(), subject.spec(template=""))
        await refused(fork, NotFound, "fork()")
    if claimed.live_egress:
        await refused(provider.set_egress(gone, SandboxSpec().egress), NotFound, "set_egress()")
    if claimed.metrics:
        await refused(provider.usage(gone), NotFound, "usage()")
    if claimed.expires_itself:
        await refused(provider.renew(gone, time.time() + 60), NotFound, "renew()")


def _labels_are_limited(capabilities: Capabilities) -> bool:
    return capabilities.max_labels is not None


async def takes_many_labels(subject: Subject) -> None:
    many = {f"label-{number}": str(number) for number in range(_MANY)}
    seen = await subject.create(subject.key(), subject.spec(labels=many))
    same(dict(seen.labels), {LABEL: subject.tag, **many}, f"{_MANY} labels")
    same([one.ref for one in await subject.mine(**many)], [seen.ref], "found by all of them")


@check(proves=("P4",), when=_labels_are_limited, otherwise=takes_many_labels)
async def more_labels_than_it_holds_are_refused_beforehand(subject: Subject) -> None:
    """One label more than max_labels is refused and makes nothing; without a maximum, many work."""
    most = subject.capabilities.max_labels or 0
    filling = {f"label-{number}": "x" for number in range(most - 1)}
    seen = await subject.create(subject.key(), subject.spec(labels=filling))
    same(len(seen.labels), most, "labels on a sandbox that has all it may have")
    over = subject.spec(labels={**filling, "one-more": "x"})
    await refused(subject.provider.create(subject.key(), over), TOO_MUCH, f"{most + 1} labels")
    same([one.ref for one in await subject.mine()], [seen.ref], "sandboxes after the refusal")


def _any_image(capabilities: Capabilities) -> bool:
    return capabilities.any_image


async def refuses_images(subject: Subject) -> None:
    image = subject.terms.image or "docker.io/library/busybox:latest"
    spec = subject.spec(template=image)
    await refused(subject.provider.create(subject.key(), spec), NotFound, f"image {image}")
    same(await subject.mine(), [], "sandboxes after a refused creation")


@check(proves=("L1", "P4"), deadline_s=300, when=_any_image, otherwise=refuses_images)
async def any_image_can_be_started_or_is_refused(subject: Subject) -> None:
    """An OCI image takes the place of a template where any_image is claimed; else it is refused."""
    expect(subject.terms.image, "any_image is claimed: give an image in Terms.image to try it")
    async with subject.sandbox(template=subject.terms.image) as box:
        same(await box.say("echo hello"), "hello", "the first command's output")
