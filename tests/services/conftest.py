"""The PostgreSQL half is slow here, except in modules with `EVERY_DATABASE = "test"`."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Modules that use the store's own fixtures have no say in how those are parametrized."""
    given = getattr(item, "callspec", None)
    module = item.getparent(pytest.Module)
    if given is None or module is None or given.params.get("place") != "postgres":
        return
    if getattr(module.obj, "EVERY_DATABASE", False) != "test":
        item.add_marker(pytest.mark.slow)
