"""Which steps of an operation a control process is killed after.

All steps of an operation take up to a minute: `make soak` tries them, the other tiers try a few.
These change from day to day. `PADDOCK_TEST_SEED`, which a failure names, repeats the choice.
"""

import datetime
import os
import random
from collections.abc import Sequence

import pytest

SEED = int(os.environ.get("PADDOCK_TEST_SEED") or datetime.date.today().toordinal())


def some_steps(*, test: int, slow: int) -> pytest.MarkDecorator:
    """For tests that take `most`, the number of steps: how many in `test` and in `test-slow`."""
    return pytest.mark.parametrize(
        "most",
        [
            pytest.param(test, id="some"),
            pytest.param(slow, id="more", marks=pytest.mark.slow),
            pytest.param(1000, id="all", marks=pytest.mark.soak),
        ],
    )


def choose(steps: Sequence[str], most: int) -> list[int]:
    """Numbers of the steps to be killed after, in order."""
    numbers = range(len(steps))
    return sorted(random.Random(SEED).sample(numbers, min(most, len(numbers))))


def moment(operation: str, name: str) -> str:
    """For messages of assertions."""
    return f"{operation} was killed after {name}; PADDOCK_TEST_SEED={SEED}"
