"""Every setting as the configuration has it, and where it comes from."""

import os
from pathlib import Path

from paddock.adapters.store import place
from paddock.services.settings import Origin, Setting
from paddock.settings import Settings, keys, variable

_DATABASE = "server.database"


def configured(settings: Settings) -> list[Setting]:
    """Every setting as the configuration has it, and where it comes from."""
    default, found = Settings(), []
    for key, _ in keys():
        value = _value(settings, key)
        source = Origin.DEFAULT if value == _value(default, key) else Origin.CONFIGURATION
        source = Origin.ENVIRONMENT if variable(key) in os.environ else source
        found.append(Setting(key, _named(value) if key == _DATABASE else value, source))
    return found


def _named(database: object) -> object:
    """As errors name it: a URL shows neither its password nor its options, which may hold one."""
    is_url = isinstance(database, str) and "://" in database
    return str(place.parse(str(database))) if is_url else database


def _value(settings: Settings, key: str) -> object:
    found: object = settings
    for name in key.split("."):
        found = getattr(found, name)
    if isinstance(found, tuple):
        return [str(each) for each in found]
    return str(found) if isinstance(found, Path) else found
