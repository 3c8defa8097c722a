"""What a provider says about itself."""

from dataclasses import fields
from typing import get_type_hints

from paddock.ports.provider import Capabilities, Provider, Status
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, same
from paddock.testing.conformance.subject import Subject


@check(proves=("P1",))
async def it_reports_itself_usable(subject: Subject) -> None:
    """check() finds it usable, and whatever is not well comes with a way to put it right."""
    health = await subject.provider.check()
    found = "; ".join(f"{f.name}: {f.status}, {f.found}" for f in health.findings)
    expect(health.usable, f"check() says that it is not usable ({found or 'no findings'})")
    for finding in health.findings:
        expect(finding.name and finding.found, f"a finding without a name or a text: {finding}")
        expect(
            finding.status is Status.OK or finding.fix,
            f"finding {finding.name!r} is {finding.status} and says nothing about how to fix it",
        )


@check(proves=("P1", "P4"))
async def its_capabilities_are_plain_and_coherent(subject: Subject) -> None:
    """It is a Provider with a name, and its flags have the right types and do not contradict."""
    provider, claimed = subject.provider, subject.capabilities
    expect(isinstance(provider, Provider), f"{type(provider).__name__} lacks methods of the port")
    expect(provider.name and provider.name.isprintable(), "the provider has no name")
    same(provider.capabilities, claimed, "capabilities asked for twice")
    types = get_type_hints(Capabilities)
    for field in fields(Capabilities):
        value, kind = getattr(claimed, field.name), types[field.name]
        # A whole number of seconds is as good as a fractional one.
        kind = kind | int if kind == float | None else kind
        expect(isinstance(value, kind), f"{field.name} is {value!r}")
    for name in ("max_lifetime_s", "max_ports", "max_labels"):
        most = getattr(claimed, name)
        expect(most is None or most > 0, f"{name} is {most!r}")
    for flag in ("live_egress", "allowlist"):
        wrong = getattr(claimed, flag) and not claimed.egress
        expect(not wrong, f"{flag} is claimed without egress")
    expect(
        claimed.max_lifetime_s is None or claimed.expires_itself,
        "max_lifetime_s is set, but expires_itself is off",
    )
    expect(not claimed.archive or claimed.stop, "archive is claimed without stop")
    expect(
        not claimed.checkpoint or claimed.snapshot,
        "checkpoint is claimed without snapshot",
    )
    expect(
        not claimed.snapshot_ignore or claimed.snapshot,
        "snapshot_ignore is claimed without snapshot",
    )
