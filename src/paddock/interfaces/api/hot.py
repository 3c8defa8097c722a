"""Which settings can be changed while the control plane runs, and what each of them changes."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from paddock.domain.lifetime import DAY, MAX_ARCHIVE_AFTER_S, MAX_TIMEOUT_S
from paddock.interfaces.api.limits import RateLimit
from paddock.services.housekeeping import Housekeeping
from paddock.services.making import Making
from paddock.services.reaper import Reaper
from paddock.services.settings import Hot, Origin, Setting, Value
from paddock.services.snapshots import Snapshots

_NEVER, _ALWAYS = "never", "always"
_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Changeable:
    """What hot settings reach into."""

    rate: RateLimit
    making: Making
    reaper: Reaper
    housekeeping: Housekeeping
    snapshots: Snapshots


def hot(configured: Sequence[Setting], parts: Changeable) -> list[Hot]:
    """Every hot setting, with what the configuration says of it."""
    rate, making, reaper, housekeeping = parts.rate, parts.making, parts.reaper, parts.housekeeping
    known = {setting.key: setting for setting in configured}

    def lifetime(name: str, most: float) -> Hot:
        def apply(value: Value) -> None:
            changed: dict[str, Any] = {name: value}
            making.lifetime = replace(making.lifetime, **changed)

        key, now = f"lifetime.{name}", getattr(making.lifetime, name)
        return Hot(key, _own(key, now), apply, least=1, most=most, can_be_none=True)

    def retention(name: str) -> Hot:
        def apply(value: Value) -> None:
            changed: dict[str, Any] = {name: value}
            housekeeping.retention = replace(housekeeping.retention, **changed)

        key, now = f"retention.{name}", asdict(housekeeping.retention)[name]
        return Hot(key, _own(key, now), apply, least=3600, most=3650 * DAY)

    def number(key: str, apply: Callable[[float], None], least: float, most: float) -> Hot:
        return Hot(key, known[key], lambda value: apply(_number(value)), least, most)

    return [
        number("server.requests_per_second", rate.change, 0.1, 1e6),
        number("server.requests_burst", lambda value: rate.change(burst=value), 1, 1e6),
        number("server.reap_every_s", lambda value: setattr(reaper, "every_s", value), 0.1, 3600),
        Hot("log.level", known["log.level"], _set_level, choices=_LEVELS),
        lifetime("timeout_s", MAX_TIMEOUT_S),
        lifetime("idle_timeout_s", MAX_TIMEOUT_S),
        lifetime("archive_after_s", MAX_ARCHIVE_AFTER_S),
        retention("events_s"),
        retention("deleted_sandboxes_s"),
        retention("keys_s"),
        retention("tasks_s"),
        *_of_snapshots(parts.snapshots),
    ]


def _of_snapshots(snapshots: Snapshots) -> list[Hot]:
    def keeping(name: str, **limits: Any) -> Hot:
        def apply(value: Value) -> None:
            changed: dict[str, Any] = {name: _kept(value)}
            snapshots.keeping = replace(snapshots.keeping, **changed)

        key, now = f"snapshots.{name}", getattr(snapshots.keeping, name)
        return Hot(key, _own(key, _NEVER if now is False else now), apply, **limits)

    return [
        keeping("idle_after_s", least=3600, most=MAX_ARCHIVE_AFTER_S, can_be_none=True),
        keeping("kept_s", least=3600, most=3650 * DAY),
        keeping("most", least=0, most=1000),
        keeping("before_delete", choices=(_NEVER, _ALWAYS)),
    ]


def _set_level(value: Value) -> None:
    logging.getLogger("paddock").setLevel(str(value).upper())


def _kept(value: Value) -> Value:
    return value == _ALWAYS if isinstance(value, str) else value


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _own(key: str, value: object) -> Setting:
    """One that no file has: it is only ever changed at run time."""
    return Setting(key, value, Origin.DEFAULT)
