"""Fronts on both kinds of event loop."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from paddock.interfaces.preview import FrontConfig, Pages, Resolve
from tests.interfaces.preview.running import RunningFront

Serve = Callable[..., RunningFront]
MOSTLY_UVLOOP = ["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)]
"""For tests of seconds: the loop of `paddock up`, and the other in slow runs."""


@pytest.fixture(params=["asyncio", "uvloop"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """`serve(resolve, **settings)` starts a front; it ends, without an error, with the test."""
    with ExitStack() as stack:

        def start(resolve: Resolve, **settings: Any) -> RunningFront:
            settings.setdefault("grace_s", 0.5)
            front = RunningFront(request.param, resolve, FrontConfig(**settings), Pages())
            return stack.enter_context(front)

        yield start
