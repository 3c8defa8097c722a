"""The suite for pytest: inherit one class, get one test per check.

class TestMyProvider(ProviderConformance):
    terms = Terms(template="base")

    @pytest.fixture(scope="class")
    @classmethod
    def open_provider(cls, tmp_path_factory):
        place = tmp_path_factory.mktemp("mine")

        async def open_it():
            return MyProvider(place)

        return open_it
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from paddock.ports.provider import Capabilities
from paddock.testing.conformance.catalogue import CHECKS
from paddock.testing.conformance.check import Check
from paddock.testing.conformance.expect import same
from paddock.testing.conformance.subject import Open, Subject, Terms

# pytest's own limit is only the last resort: a check has a deadline, and so has its clean-up.
_LAST_RESORT_S = 180.0


class ProviderConformance:
    """What a provider's test class inherits. It says `terms` and has a fixture `open_provider`.

    The fixture gives a function that opens an instance; it is called again wherever a check
    restarts the control plane, and has to lead to the same sandboxes.
    """

    terms: ClassVar[Terms]
    claims: ClassVar[Capabilities | None] = None
    """What the provider is expected to claim. Where given, it is held to it."""
    counts_as_proof: ClassVar[bool] = True
    """Whether passing shows that Paddock can do it; a provider made for tests shows nothing."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for check in CHECKS:
            setattr(cls, f"test_{check.name}", _as_test(check, cls._proofs(check)))

    @pytest_asyncio.fixture(scope="class", loop_scope="session")
    @classmethod
    async def subject(cls, open_provider: Open) -> AsyncIterator[Subject]:
        subject = Subject(await open_provider(), open_provider, cls.terms)
        yield subject
        await subject.provider.aclose()

    @pytest.mark.asyncio(loop_scope="session")
    async def test_it_claims_what_it_is_expected_to(self, subject: Subject) -> None:
        if self.claims is not None:
            same(subject.capabilities, self.claims, "the capabilities")

    @classmethod
    def _proofs(cls, check: Check) -> tuple[str, ...]:
        """What a pass proves. A refusal proves nothing but that it is refused."""
        if not cls.counts_as_proof:
            return ()
        if check.otherwise is None:
            return check.proves
        if cls.claims is not None and check.when(cls.claims):
            return check.proves
        return ()


def _as_test(check: Check, proves: tuple[str, ...]) -> Callable[..., Awaitable[None]]:
    async def test(self: ProviderConformance, subject: Subject) -> None:
        await check.run(subject)

    test.__name__ = f"test_{check.name}"
    test.__doc__ = check.says
    marked = pytest.mark.asyncio(loop_scope="session")(test)
    marked = pytest.mark.timeout(check.deadline_s + _LAST_RESORT_S)(marked)
    return pytest.mark.proves(*proves)(marked) if proves else marked
