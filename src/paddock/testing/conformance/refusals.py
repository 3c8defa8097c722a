"""What holds where a capability is not claimed: a proper refusal that changes nothing."""

from collections.abc import Awaitable, Callable

from paddock.domain.errors import Unsupported
from paddock.ports.provider import Ref, Status
from paddock.testing.conformance.check import Body
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.subject import Subject

Use = Callable[[Subject, Ref], Awaitable[object]]


def refuses(**uses: Use) -> Body:
    """Each use must raise Unsupported, and the sandbox must be as it was."""

    async def body(subject: Subject) -> None:
        async with subject.sandbox() as box:
            await box.say("echo kept > kept")
            for name, use in uses.items():
                await refused(use(subject, box.ref), Unsupported, name)
            after = await subject.provider.observe(box.ref)
            same((after.state, after.reason), (box.seen.state, None), "the state after a refusal")
            same(await box.say("cat kept"), "kept", "the disk after a refusal")
            same(
                [seen.ref for seen in await subject.mine()], [box.ref], "sandboxes after a refusal"
            )

    return body


async def admits_that_nothing_is_fenced(subject: Subject) -> None:
    """Without isolation there is nothing to refuse, but check() has to say so."""
    health = await subject.provider.check()
    admitted = [finding for finding in health.findings if finding.name == "isolation"]
    expect(
        any(finding.status is not Status.OK and finding.found for finding in admitted),
        "a provider without isolation has no finding named `isolation` in check() that warns of it",
    )
