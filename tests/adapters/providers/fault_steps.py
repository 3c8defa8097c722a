"""Which steps of an operation a control process is killed after.

All steps of an operation take up to a minute: `make soak` tries them, `make test` tries one.
The step changes from day to day. `PADDOCK_TEST_SEED`, which a failure names, repeats the choice.
"""

import datetime
import os
import random
from collections.abc import Sequence

import pytest

SEED = int(os.environ.get("PADDOCK_TEST_SEED") or datetime.date.today().toordinal())


some_steps = pytest.mark.parametrize(
    "most", [pytest.param(1, id="one"), pytest.param(1000, id="all", marks=pytest.mark.soak)]
)
"""For tests that take `most`, the number of steps to be killed after."""


def choose(steps: Sequence[str], most: int) -> list[int]:
    """Numbers of the steps to be killed after, in order."""
    numbers = range(len(steps))
    return sorted(random.Random(SEED).sample(numbers, min(most, len(numbers))))


def moment(operation: str, name: str) -> str:
    """For messages of assertions."""
    return f"{operation} was killed after {name}; PADDOCK_TEST_SEED={SEED}"
