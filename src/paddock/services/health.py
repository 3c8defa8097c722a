"""How the providers are: asked now and then, not for everyone who looks."""

import asyncio
from dataclasses import dataclass

from paddock.domain.errors import PaddockError
from paddock.ports.clock import Clock
from paddock.ports.provider import Capabilities, Finding, Provider
from paddock.services.providers import Providers

_FRESH_S = 5.0
_LONGEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What was wrong the last time that something was."""

    message: str
    at: float


@dataclass(frozen=True, slots=True)
class Condition:
    """How a provider was when it was last asked."""

    name: str
    default: bool
    usable: bool
    checked_at: float
    latency_s: float | None = None
    findings: tuple[Finding, ...] = ()
    capabilities: Capabilities | None = None
    """None for one that could not be opened."""
    last_fault: Fault | None = None


class ProviderHealth:
    """Each provider is asked at most every few seconds, and once for all who wait."""

    def __init__(self, providers: Providers, clock: Clock) -> None:
        self._providers = providers
        self._clock = clock
        self._known: dict[str, Condition] = {}
        self._asked: dict[str, float] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def all(self) -> list[Condition]:
        """Every provider, the default first, and those that could not be opened."""
        opened = await asyncio.gather(
            *(self._condition(name, provider) for name, provider in self._providers)
        )
        now = self._clock.wall()
        absent = [
            Condition(name, name == self._providers.default, False, now, last_fault=Fault(why, now))
            for name, why in self._providers.absent.items()
        ]
        return sorted([*opened, *absent], key=lambda each: (not each.default, each.name))

    async def _condition(self, name: str, provider: Provider) -> Condition:
        async with self._locks.setdefault(name, asyncio.Lock()):
            asked = self._asked.get(name)
            if asked is None or self._clock.now() - asked >= _FRESH_S:
                self._known[name] = await self._look(name, provider)
                self._asked[name] = self._clock.now()
            return self._known[name]

    async def _look(self, name: str, provider: Provider) -> Condition:
        started, usable, findings = self._clock.now(), False, tuple[Finding, ...]()
        before = self._known.get(name)
        fault = before.last_fault if before else None
        now = self._clock.wall()
        try:
            async with asyncio.timeout(_LONGEST_S):
                seen = await provider.check()
            usable, findings = seen.usable, seen.findings
            if not usable:
                missing = [each for each in findings if each.status == "missing"] or findings
                fault = Fault("; ".join(f"{each.name}: {each.found}" for each in missing), now)
        except PaddockError as error:
            fault = Fault(error.message, now)
        except TimeoutError:
            fault = Fault(f"it did not answer within {_LONGEST_S:g} s", now)
        return Condition(
            name=name,
            default=name == self._providers.default,
            usable=usable,
            checked_at=now,
            latency_s=self._clock.now() - started,
            findings=findings,
            capabilities=provider.capabilities,
            last_fault=fault,
        )
