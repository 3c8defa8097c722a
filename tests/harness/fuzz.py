"""How many examples a fuzz target tries: a few hundred in every run, more by hand."""

import os

from hypothesis import HealthCheck, settings


def fuzzed(examples: int = 200) -> settings:
    """Settings for a fuzz target. PADDOCK_TEST_FUZZ=N tries N random examples instead."""
    wanted = os.environ.get("PADDOCK_TEST_FUZZ", "")
    return settings(
        max_examples=int(wanted or examples),
        derandomize=not wanted,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
