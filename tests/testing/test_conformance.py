"""The suite itself: complete, tidy, and honest about what went wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.domain.errors import Conflict, NotFound
from paddock.ports.provider import Capabilities, Isolation, Observation, PauseKind, Ref, SandboxSpec
from paddock.testing.conformance import CHECKS, Nonconformity, Outcome, Terms, run_conformance
from paddock.testing.conformance.check import Check, check, isolated
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.subject import Subject
from paddock.testing.conformance.suite import ProviderConformance
from paddock.testing.reference import TEMPLATE, ReferenceProvider

NOTHING = Capabilities(isolation=Isolation.NONE)
CLAIMS: dict[str, Any] = {
    "isolation": Isolation.CONTAINER,
    "pause": PauseKind.MEMORY,
    "max_ports": 4,
    "max_labels": 4,
}
# A number that only renew() looks at.
WITHOUT_A_BRANCH = {"max_lifetime_s"}

Run = Callable[[Check], Awaitable[Outcome]]


@pytest.fixture
def run(fresh_place: Path) -> Run:
    """Tries the reference provider with one check."""

    async def try_it(one: Check) -> Outcome:
        async def open_it() -> ReferenceProvider:
            return ReferenceProvider(fresh_place)

        (outcome,) = await run_conformance(open_it, TEMPLATE, checks=[one])
        return outcome

    return try_it


def left(place: Path) -> list[str]:
    return [path.name for path in (place / "sbx").iterdir()]


@pytest.mark.proves("P4")
@pytest.mark.parametrize("flag", sorted(set(Capabilities.__dataclass_fields__) - WITHOUT_A_BRANCH))
def test_every_capability_is_tried_both_ways(flag):
    claimed = replace(NOTHING, **{flag: CLAIMS.get(flag, True)})
    assert any(one.when(NOTHING) != one.when(claimed) for one in CHECKS)


def test_every_check_reads_as_a_sentence_and_is_unique():
    assert len({one.name for one in CHECKS}) == len(CHECKS)
    assert [one.name for one in CHECKS if not one.says.endswith(".")] == []


def test_a_check_that_may_not_apply_says_what_holds_otherwise():
    with pytest.raises(TypeError, match="otherwise"):
        check(when=isolated)


async def test_a_report_hears_of_every_check_as_it_ends(fresh_place):
    async def open_it() -> ReferenceProvider:
        return ReferenceProvider(fresh_place)

    heard: list[Outcome] = []
    outcomes = await run_conformance(open_it, Terms(TEMPLATE), heard.append, checks=CHECKS[:4])
    assert heard == outcomes
    assert [one.name for one in heard] == [one.name for one in CHECKS[:4]]
    assert all(one.passed and one.problem == "" for one in heard)


async def test_a_failed_check_leaves_nothing_behind(run, fresh_place):
    @check()
    async def fails_with_a_sandbox(subject: Subject) -> None:
        """It makes two sandboxes, one of them without telling."""
        await subject.create(subject.key(), subject.spec())
        await subject.provider.create(subject.key(), subject.spec())
        assert len(left(fresh_place)) == 2
        expect(False, "this is what was wanted")

    outcome = await run(fails_with_a_sandbox)
    assert outcome.problem == "Nonconformity: this is what was wanted"
    assert left(fresh_place) == []


async def test_a_check_that_hangs_is_ended_and_leaves_nothing_behind(run, fresh_place):
    @check(deadline_s=0.5)
    async def hangs(subject: Subject) -> None:
        """It waits for ever."""
        async with subject.sandbox():
            await asyncio.sleep(3600)

    outcome = await run(hangs)
    assert outcome.problem == "Nonconformity: not done within 0.5 s"
    assert left(fresh_place) == []


async def test_a_mistake_in_a_check_is_reported_and_the_rest_goes_on(run):
    @check()
    async def trips(subject: Subject) -> None:
        """It divides by zero."""
        _ = 1 / 0

    assert (await run(trips)).problem.startswith("ZeroDivisionError")


async def test_what_cannot_be_removed_fails_a_check_that_was_good_otherwise(fresh_place):
    class Clinging(ReferenceProvider):
        async def destroy(self, ref: Ref) -> None:
            raise Conflict("mine")

    @check()
    async def is_fine(subject: Subject) -> None:
        """It makes a sandbox."""
        await subject.create(subject.key(), subject.spec())

    async def open_it() -> ReferenceProvider:
        return Clinging(fresh_place)

    (outcome,) = await run_conformance(open_it, TEMPLATE, checks=[is_fine])
    assert outcome.problem == "Conflict: mine"


async def test_a_cancelled_run_removes_what_it_had_made(fresh_place):
    made = asyncio.Event()

    class Telling(ReferenceProvider):
        async def create(self, key: str, spec: SandboxSpec) -> Observation:
            seen = await super().create(key, spec)
            made.set()
            return seen

    @check()
    async def waits(subject: Subject) -> None:
        """It waits for ever."""
        async with subject.sandbox():
            await asyncio.sleep(3600)

    async def open_it() -> ReferenceProvider:
        return Telling(fresh_place)

    running = asyncio.create_task(run_conformance(open_it, TEMPLATE, checks=[waits]))
    await made.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert left(fresh_place) == []


async def test_a_refusal_has_to_be_the_right_one():
    async def raises(error: Exception) -> None:
        raise error

    async def returns() -> str:
        return "done"

    assert (await refused(raises(NotFound("gone")), NotFound, "it")).message == "gone"
    with pytest.raises(Nonconformity, match=r"it raised Conflict .* instead of NotFound"):
        await refused(raises(Conflict("busy")), NotFound, "it")
    with pytest.raises(Nonconformity, match="without a message"):
        await refused(raises(NotFound(" ")), NotFound, "it")
    with pytest.raises(Nonconformity, match="it was not refused: it returned 'done'"):
        await refused(returns(), NotFound, "it")
    with pytest.raises(ZeroDivisionError):
        await refused(raises(ZeroDivisionError()), NotFound, "it")


def test_long_values_are_cut_in_a_message():
    with pytest.raises(Nonconformity, match=r"… \(1002 characters\)"):
        same("x" * 1000, "y", "it")


def test_only_what_was_done_counts_as_proof():
    class Claiming(ProviderConformance):
        claims = replace(NOTHING, stop=True)

    class Unsaid(ProviderConformance):
        pass

    def proofs(suite: type, name: str) -> list[str]:
        marks = getattr(getattr(suite, f"test_{name}"), "pytestmark", [])
        return [proof for mark in marks if mark.name == "proves" for proof in mark.args]

    stopping = "stop_and_start_can_be_repeated"
    assert proofs(Claiming, stopping) == ["L4"]
    assert proofs(Claiming, "pause_and_resume_can_be_repeated") == []
    assert proofs(Unsaid, stopping) == []
    assert proofs(Unsaid, "the_same_key_gives_the_same_sandbox") == ["L2"]
