"""Every setting as the configuration has it, and where it comes from."""

import os
from pathlib import Path

from paddock.services.settings import Origin, Setting
from paddock.settings import Settings, keys, variable


def configured(settings: Settings) -> list[Setting]:
    """Every setting as the configuration has it, and where it comes from."""
    default, found = Settings(), []
    for key, _ in keys():
        value = _value(settings, key)
        source = Origin.DEFAULT if value == _value(default, key) else Origin.CONFIGURATION
        source = Origin.ENVIRONMENT if variable(key) in os.environ else source
        found.append(Setting(key, value, source))
    return found


def _value(settings: Settings, key: str) -> object:
    found: object = settings
    for name in key.split("."):
        found = getattr(found, name)
    if isinstance(found, tuple):
        return [str(each) for each in found]
    return str(found) if isinstance(found, Path) else found
