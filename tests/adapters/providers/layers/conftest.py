"""Fixtures around the scripted provider."""

import pytest

from paddock.testing.clock import ManualClock

from .scripted import UNABLE, ScriptedProvider


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
def unable() -> ScriptedProvider:
    return ScriptedProvider(UNABLE)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
