"""No check without a proof that it can fail, on both of its branches."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.domain import errors
from paddock.ports.provider import Provider
from paddock.testing.broken import DEFECTS, Defect, agents, fencing, sleeping, volumes
from paddock.testing.conformance import CHECKS, run_conformance
from paddock.testing.conformance.catalogue import named
from tests.conftest import Need

NEED_ROOT = (*fencing.DEFECTS, *sleeping.DEFECTS, *volumes.DEFECTS, *agents.DEFECTS)
PAIRS = [(defect, name) for defect in DEFECTS for name in defect.fails]
# A check that trips over itself has found nothing.
FINDINGS = ("Nonconformity", *(leaf.__name__ for leaf in errors.leaves()))


def _branches() -> list[tuple[str, bool]]:
    """The check of each pair, and whether its defect fails the body or what holds otherwise."""
    with tempfile.TemporaryDirectory(prefix="pdk-") as place:
        made = [(defect.make(Path(place)), named(name)) for defect, name in PAIRS]
        return [(one.name, one.chosen(each.capabilities) is one.body) for each, one in made]


_LONG = ("a_deadline_ends_the_whole_tree",)
"""Checks that wait for seconds where a provider is broken."""
_GREEDY = ("processor_time_is_limited",)
"""Checks that find a defect only where processors are free."""


def _cases() -> Iterator[Any]:
    """The first defect that fails a branch of a check shows that it can fail; more are slow."""
    failed = set()
    for (defect, name), branch in zip(PAIRS, _branches(), strict=True):
        marks = [pytest.mark.slow] if branch in failed or name in _LONG else []
        marks += [pytest.mark.alone] if name in _GREEDY else []
        failed.add(branch)
        yield pytest.param(defect, name, marks=marks, id=f"{defect.what}: {name}")


@pytest.mark.parametrize(("defect", "name"), list(_cases()))
async def test_a_provider_with_a_defect_fails_the_check_for_it(
    defect: Defect, name: str, fresh_place: Path, need: Need
) -> None:
    if defect in NEED_ROOT and os.geteuid() != 0:
        need("root", "only root could do what the missing fence allows")

    async def open_it() -> Provider:
        return defect.make(fresh_place)

    (outcome,) = await run_conformance(open_it, defect.terms, checks=[named(name)])
    assert not outcome.passed, f"a provider that {defect.what} passes {name}"
    assert outcome.problem.split(":")[0] in FINDINGS, outcome.problem


@pytest.mark.usefixtures("as_root")
def test_every_branch_of_every_check_is_failed_by_some_provider() -> None:
    failed = set(_branches())
    wanted = {(check.name, True) for check in CHECKS}
    wanted |= {(check.name, False) for check in CHECKS if check.otherwise is not None}
    assert wanted - failed == set(), "checks that nothing has ever failed"
    assert {name for name, _ in failed} <= {check.name for check in CHECKS}
