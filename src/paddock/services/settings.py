"""Settings as they are in effect, and the ones that can be changed while everything runs."""

import asyncio
import difflib
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import InvalidRequest
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.alongside import alongside, every

_log = logging.getLogger(__name__)
_PREFIX = "setting."
_POLL_S = 5.0
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_ENTRANCE = re.compile(r"(?<=://)[^/?#]*@")
"""To the last `@`: what stands before it may hold one."""
_ARGUMENT = re.compile(r"([?&#][^=&#]*)=[^&#]*")
FOR_EVERYONE = (
    "files.",
    "lifetime.",
    "retention.",
    "snapshots.",
    "server.events_",
    "server.preview_domain",
    "server.public_url",
    "server.requests_",
    "server.ssh_public",
)
"""What the settings begin with that every team meets: limits, lifetimes, addresses to reach. All
else is the installation's: where it keeps what, what it listens on, how it is built."""
Value = str | float | int | bool | None


class Origin(StrEnum):
    """Where a setting's value comes from."""

    DEFAULT = "default"
    CONFIGURATION = "configuration"
    """The settings file or the command line."""
    ENVIRONMENT = "environment"
    RUN_TIME = "run_time"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in effect."""

    key: str
    value: object
    source: Origin
    hot: bool = False


@dataclass(frozen=True, slots=True)
class Hot:
    """A setting that takes effect at once: `apply` is called with every value it gets."""

    key: str
    configured: Setting
    apply: Callable[[Value], None]
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()
    """For a setting that is a word."""
    can_be_none: bool = False

    def check(self, value: Value) -> Value:
        if self.choices:
            if value in self.choices:
                return value
            raise self._refused(value, f"one of {', '.join(self.choices)}")
        if value is None and self.can_be_none:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and self.least <= float(value or 0) <= self.most:
            return float(value or 0)
        never = ", or null for never" if self.can_be_none else ""
        raise self._refused(value, f"a number from {self.least:g} to {self.most:g}{never}")

    def _refused(self, value: Value, expected: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.key} cannot be {str(value)[:80]!r}", remediation=f"set it to {expected}"
        )


class SettingsAtWork:
    """What is changed is kept in the store, takes effect at once, and is in the audit log."""

    def __init__(
        self, store: Store, clock: Clock, fixed: Sequence[Setting], hot: Sequence[Hot]
    ) -> None:
        self._store = store
        self._clock = clock
        self._fixed = {setting.key: setting for setting in fixed}
        self._hot = {each.key: each for each in hot}
        self._changed: dict[str, Value] = {}
        self._turn = asyncio.Lock()

    async def list(self, principal: Principal) -> Sequence[Setting]:
        """Everything for the operating team; for others what their own work meets."""
        principal.require(Scope.SETTINGS_READ)
        fixed = [each for key, each in self._fixed.items() if key not in self._hot]
        found = [*fixed, *(self._shown(each) for each in self._hot.values())]
        if not principal.operator:
            found = [each for each in found if each.key.startswith(FOR_EVERYONE)]
        return sorted(map(_masked, found), key=lambda each: each.key)

    async def change(
        self, principal: Principal, wanted: Mapping[str, Value], reset: Sequence[str] = ()
    ) -> Sequence[Setting]:
        """All of it or nothing; what is reset is again what the configuration says."""
        principal.require(Scope.SETTINGS_WRITE)
        checked = {key: self._find(key).check(value) for key, value in wanted.items()}
        for key in reset:
            self._find(key)
        await self._put(principal, checked, tuple(dict.fromkeys(reset)))
        return await self.list(principal)

    async def load(self) -> None:
        """Take up what was changed before this process started, or by another one."""
        async with self._turn:  # what was read before is never taken for what was read later
            self._take(self._read(await self._store.read(lambda tx: tx.values.all(_PREFIX))))

    def _read(self, kept: Mapping[str, object]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for name, value in kept.items():
            key = name.removeprefix(_PREFIX)
            try:
                found[key] = self._find(key).check(value)  # type: ignore[arg-type]
            except InvalidRequest as error:
                details = {"key": key, "error": error.message}
                _log.warning("kept setting not taken up", extra=details)
        return found

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """While this is open, what another process changes takes effect here too."""
        if not self._store.is_shared:
            yield
            return
        looking = every(_POLL_S, self.load, clock=self._clock, failed="settings could not be read")
        async with alongside(looking, "settings of other processes"):
            yield

    async def _put(
        self, principal: Principal, values: Mapping[str, Value], gone: Sequence[str]
    ) -> None:
        now = self._clock.wall()

        def write(tx: Transaction) -> None:
            for key, value in values.items():
                tx.values.put(_PREFIX + key, value)
            for key in gone:
                tx.values.remove(_PREFIX + key)
            team, actor = principal.team_id, principal.actor
            tx.audit.append(
                [
                    *(
                        AuditEntry(team, actor, "settings.change", key, now, {"value": value})
                        for key, value in values.items()
                    ),
                    *(AuditEntry(team, actor, "settings.reset", key, now) for key in gone),
                ]
            )

        await self._store.write(write)
        await self.load()

    def _take(self, changed: Mapping[str, Value]) -> None:
        before, self._changed = self._changed, dict(changed)
        for key in {*before, *changed}:
            if before.get(key, _NOTHING) != changed.get(key, _NOTHING):
                hot = self._hot[key]
                value = changed.get(key, hot.configured.value)
                hot.apply(value)  # type: ignore[arg-type]

    def _shown(self, hot: Hot) -> Setting:
        if hot.key in self._changed:
            return Setting(hot.key, self._changed[hot.key], Origin.RUN_TIME, hot=True)
        return Setting(hot.key, hot.configured.value, hot.configured.source, hot=True)

    def _find(self, key: str) -> Hot:
        if (found := self._hot.get(key)) is not None:
            return found
        if key in self._fixed:
            raise InvalidRequest(
                f"{key} takes effect only when the server starts",
                remediation="set it in paddock.toml or the environment, and restart",
            )
        close = difflib.get_close_matches(key.lower(), [*self._hot, *self._fixed], n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise InvalidRequest(
            f"there is no setting {key[:80]!r}{meant}",
            remediation=f"these can be changed: {', '.join(sorted(self._hot))}",
        )


_NOTHING = object()


def _masked(setting: Setting) -> Setting:
    return replace(setting, value=_without_secrets(setting.value))


def _without_secrets(value: object) -> object:
    """A URL may hold a password or a token before its host, and among its arguments."""
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    if not isinstance(value, str) or not _URL.match(value):
        return value
    return _ARGUMENT.sub(r"\1=***", _ENTRANCE.sub("***@", value))
