"""Root, where tests need it: without it they are reported as not run."""

import os

import pytest


def require_root() -> None:
    """End the test or fixture that calls this as not run, unless it runs as root."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the tests run as an ordinary user")
