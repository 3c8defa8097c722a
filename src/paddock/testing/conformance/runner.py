"""The suite without pytest: what `paddock doctor --conformance PROVIDER` runs."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddock.testing.conformance.catalogue import CHECKS
from paddock.testing.conformance.check import Check
from paddock.testing.conformance.subject import Open, Subject, Terms


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one check went."""

    name: str
    says: str
    passed: bool
    refused: bool
    """The capability is not claimed: what was tried is that it is refused properly."""
    seconds: float
    problem: str = ""


Report = Callable[[Outcome], None]


async def run_conformance(
    factory: Open,
    template: str | Terms,
    report: Report = lambda _: None,
    *,
    checks: Iterable[Check] = CHECKS,
) -> list[Outcome]:
    """Try a provider, one check after the other; `report` hears of each as it ends.

    `factory` opens an instance, and is called again wherever a check restarts the control plane.
    """
    terms = Terms(template) if isinstance(template, str) else template
    subject = Subject(await factory(), factory, terms)
    outcomes = []
    try:
        for check in checks:
            outcomes.append(await _try(check, subject))
            report(outcomes[-1])
    finally:
        await subject.provider.aclose()
    return outcomes


async def _try(check: Check, subject: Subject) -> Outcome:
    started, problem = time.monotonic(), ""
    refused = check.chosen(subject.capabilities) is not check.body
    try:
        await check.run(subject)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a provider does is a result here
        problem = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - started
    return Outcome(check.name, check.says, not problem, refused, seconds, problem)
