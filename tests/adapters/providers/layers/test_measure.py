"""The observer is told everything and changes nothing."""

import asyncio
import logging

import pytest

from paddock.adapters.providers.layers import Layered, Measure
from paddock.domain.errors import PaddockError, Unavailable, leaves

from .scripted import CALLS, SEEN, ScriptedProvider, use


class Notebook:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, float, str]] = []

    def __call__(self, provider, operation, seconds, outcome):
        self.lines.append((provider, operation, seconds, outcome))


@pytest.mark.parametrize("operation", CALLS)
async def test_every_call_is_told_with_its_outcome(provider, clock, operation):
    notebook = Notebook()
    await use(Layered(provider, Measure(notebook, clock)), operation)
    assert notebook.lines == [("scripted", operation, 0.0, "ok")]


@pytest.mark.parametrize("leaf", leaves(PaddockError), ids=lambda leaf: leaf.code)
async def test_a_failed_call_is_told_with_the_code_of_its_error(provider, clock, leaf):
    notebook, provider.script = Notebook(), [leaf("no")]
    with pytest.raises(leaf):
        await use(Layered(provider, Measure(notebook, clock)), "observe")
    assert [line[3] for line in notebook.lines] == [leaf.code]


async def test_an_error_that_is_not_ours_counts_as_internal(provider, clock):
    notebook, provider.script = Notebook(), [ValueError("no")]
    with pytest.raises(ValueError, match="no"):
        await use(Layered(provider, Measure(notebook, clock)), "observe")
    assert [line[3] for line in notebook.lines] == ["internal"]


async def test_a_cancelled_call_is_told_and_stays_cancelled(provider, clock):
    notebook, provider.script = Notebook(), [3600.0]
    task = asyncio.create_task(use(Layered(provider, Measure(notebook, clock)), "observe"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line[3] for line in notebook.lines] == ["cancelled"]


async def test_the_time_is_that_of_the_call(provider, clock):
    class Slow(ScriptedProvider):
        async def observe(self, ref):
            clock.advance(2.5)
            return SEEN

    notebook = Notebook()
    await use(Layered(Slow(), Measure(notebook, clock)), "observe")
    assert notebook.lines == [("scripted", "observe", 2.5, "ok")]


@pytest.mark.parametrize("script", [[], [Unavailable("no")]], ids=["success", "failure"])
async def test_an_observer_that_fails_is_logged_and_nobody_else_notices(
    provider, clock, caplog, script
):
    def broken(provider, operation, seconds, outcome):
        raise ZeroDivisionError

    provider.script = list(script)
    layered = Layered(provider, Measure(broken, clock))
    with caplog.at_level(logging.ERROR):
        if script:
            with pytest.raises(Unavailable):
                await use(layered, "observe")
        else:
            assert await use(layered, "observe") == SEEN
    assert "observer failed for observe of scripted" in caplog.text
