"""A provider with one thing wrong, and the checks that must notice."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddock.ports.provider import Capabilities, Provider
from paddock.testing.conformance.subject import Terms
from paddock.testing.reference import TEMPLATE, ReferenceProvider
from paddock.testing.simulated import IMAGE

Make = Callable[[Path], Provider]


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong, who has it, and who has to find it."""

    what: str
    make: Make
    fails: tuple[str, ...]
    terms: Terms = field(default_factory=lambda: Terms(TEMPLATE, image=IMAGE))


def claiming(provider: type[ReferenceProvider], **flags: Any) -> type[ReferenceProvider]:
    """The same provider with other capabilities than it has."""
    honest: property = inspect.getattr_static(provider, "capabilities")

    def capabilities(self: ReferenceProvider) -> Capabilities:
        claimed: Capabilities = honest.__get__(self)
        return replace(claimed, **flags)

    return type(provider.__name__, (provider,), {"capabilities": property(capabilities)})
