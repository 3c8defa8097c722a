"""Collect garbage at the end of each module, so that its warnings fail that module and no other.

A pytest plugin. Warnings are errors, and an object that nobody closed warns when it is collected:
without this, in whichever test runs at that moment.
"""

import gc
from collections.abc import Iterator

import pytest


def pytest_collection_finish() -> None:
    """Leave everything that is there now, the tests themselves, out of later collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collected_garbage() -> Iterator[None]:
    """The first fixture of a module, and so the last one to end."""
    yield
    gc.collect()
