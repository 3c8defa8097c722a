"""Collect garbage at the end of each module, so that its warnings fail that module and no other.

A pytest plugin. Warnings are errors, and an object that was not closed warns when it is collected.
Without this plugin, that fails whichever test runs at that moment.
"""

import gc
from collections.abc import Iterator

import pytest


def pytest_collection_finish() -> None:
    """Exclude all current objects, such as the tests themselves, from later collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collected_garbage() -> Iterator[None]:
    """The first fixture of a module, and so the last one to end."""
    yield
    gc.collect()
