"""Which provider is used, and how each is opened with what it needs."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from paddock import telemetry
from paddock.adapters.providers import registry
from paddock.adapters.providers.layers import standard_layers
from paddock.domain.errors import NotFound, PaddockError, Unavailable
from paddock.interfaces.cli.toolbox import Progress, Templates
from paddock.ports.clock import SystemClock
from paddock.ports.provider import Finding, Provider, Status
from paddock.services.provider_templates import Pool
from paddock.settings import Settings

if TYPE_CHECKING:
    from paddock.adapters.egress.gateway import HostGateway

AUTO = "auto"
Look = Callable[[], Awaitable[Sequence[Finding]]]


def looks(settings: Settings) -> dict[str, Look]:
    """How each provider that may be taken by itself is looked at, best first."""

    async def local() -> Sequence[Finding]:
        from paddock.adapters.providers.local import checks

        return await asyncio.to_thread(checks.inspect, settings.local)

    async def docker() -> Sequence[Finding]:
        from paddock.adapters.providers.docker import checks

        return (await checks.check(settings.docker)).findings

    return {"local": local, "docker": docker}


async def choose(wish: str, looks: Mapping[str, Look]) -> str:
    """The provider that was asked for or, for auto, the first that lacks nothing."""
    if wish != AUTO:
        return wish
    lacks: dict[str, list[Finding]] = {}
    for name, look in looks.items():
        lacks[name] = lacking(await look())
        if not lacks[name]:
            return name
    raise Unavailable(nowhere(lacks), remediation=ways_out(lacks))


def lacking(findings: Iterable[Finding]) -> list[Finding]:
    return [each for each in findings if each.status is Status.MISSING]


def nowhere(lacks: Mapping[str, Sequence[Finding]]) -> str:
    parts = (
        f"{name}: {', '.join(f'{each.name} ({each.found})' for each in missing)}"
        for name, missing in lacks.items()
    )
    return f"no provider works here: {'; '.join(parts)}"


def ways_out(lacks: Mapping[str, Sequence[Finding]]) -> str:
    """For each provider, what would make it usable."""
    ways = {
        name: "; ".join(each.fix for each in missing if each.fix) for name, missing in lacks.items()
    }
    if len(ways) == 1:
        return next(iter(ways.values()))
    return "one of these is enough:" + "".join(f"\n    {name}: {way}" for name, way in ways.items())


def layered(bare: Provider) -> Provider:
    return standard_layers(bare, clock=SystemClock(), observer=telemetry.observe_call)


class Opener:
    """Opens providers; what they share in this process is closed with it."""

    def __init__(self, settings: Settings, progress: Progress, *, warm: bool = False) -> None:
        self._warm = warm
        self._settings = settings
        self._progress = progress
        self._shared = AsyncExitStack()
        self._stock: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shared.aclose()

    async def open(self, name: str) -> Provider:
        """Without any layer. NotFound, with the names there are, for one that nobody registered."""
        kind: Any = registry.load(name)
        match name:
            case "local":
                opening = kind.open(
                    self._local,
                    progress=self._progress,
                    egress=self._settings.egress,
                    closed_ports=self._settings.server.ports,
                    agents=self._agents,
                )
            case "docker":
                opening = kind.open(
                    self._settings.docker,
                    await self._images(),
                    egress=self._settings.egress,
                    closed_ports=self._settings.server.ports,
                    agents=self._agents,
                )
            case _:
                opening = kind.open(getattr(self._settings, name, None))
        opened: Provider = await opening
        return opened

    @property
    def _local(self) -> Any:
        """Nothing is kept warm by a process that will be gone before anybody could claim it."""
        return self._settings.local if self._warm else replace(self._settings.local, warm={})

    @property
    def _agents(self) -> Path | None:
        """Only a server makes the directory that it installs them in."""
        place = self._settings.agents_dir
        return place if self._warm or place.is_dir() else None

    async def prepare(self, bare: Provider, template: str, image_mib: int | None = None) -> None:
        """Building a template takes minutes, more than create() is given; so it is done before."""
        from paddock.adapters.providers.local.provider import LocalProvider

        if isinstance(bare, LocalProvider):
            await bare.prepare(template, image_mib)
        elif self._stock is not None:
            # What nobody knows by this name may be an image that the engine does.
            with suppress(NotFound):
                await self._stock.find(template)

    async def is_built(self, bare: Provider, template: str) -> bool:
        """Whether create() need not build it. NotFound where no template has this name."""
        from paddock.adapters.providers.local.provider import LocalProvider

        if isinstance(bare, LocalProvider):
            return bare.templates.built(bare.templates.resolve(template)) is not None
        return self._stock is None or bool(await self._stock.is_built(template))

    def templates(self, bare: Provider) -> Templates | None:
        """The recipes that a provider's sandboxes can be made of, if it knows any."""
        from paddock.adapters.providers.docker.provider import DockerProvider
        from paddock.adapters.providers.local.provider import LocalProvider
        from paddock.wiring.shelf import Shelf

        if isinstance(bare, LocalProvider):
            return Shelf(bare.templates, self._settings.local, self._settings.docker)
        return self._stock.recipes if isinstance(bare, DockerProvider) else None

    async def _images(self) -> Any:
        """Where an engine's images of our templates come from: root's store, or the user's own."""
        from paddock.wiring import images

        if self._stock is None:
            stock = images.of_user(self._settings.docker, self._local, self._progress)
            if os.geteuid() == 0:
                stock = images.from_store(
                    self._settings.docker,
                    self._local,
                    self._progress,
                    egress=self._settings.egress,
                )
            self._stock = await self._shared.enter_async_context(stock)
        return self._stock.find


def pool(bare: Provider, settings: Settings) -> Pool | None:
    from paddock.adapters.providers.local.provider import LocalProvider

    if not isinstance(bare, LocalProvider):
        return None
    return Pool(bare.keep_warm, bare.warm.ready_of, settings.local.warm)


def gateways(bare: Iterable[Provider | str]) -> "dict[str, HostGateway]":
    """Of those that have one."""
    from paddock.adapters.providers.docker.provider import DockerProvider
    from paddock.adapters.providers.local.provider import LocalProvider

    return {
        each.name: each.gateway
        for each in bare
        if isinstance(each, LocalProvider | DockerProvider) and each.gateway is not None
    }


async def health(name: str, settings: Settings, findings: Sequence[Finding]) -> Sequence[Finding]:
    """What the provider finds once it is open; when it does not open, why, after what was seen.

    A look makes nothing: where the local provider was never used it stays closed, because opening
    it makes its pool.
    """
    if name == "local" and not settings.local.data_dir.exists():
        place = f"will be made at {settings.local.data_dir} when it is first used"
        return (*findings, Finding("storage", Status.OK, place))
    async with Opener(settings, lambda _text, _fraction: None) as opener:
        try:
            provider = await opener.open(name)
        except PaddockError as error:
            fault = Finding("opening", Status.MISSING, error.message, error.remediation)
            return (*findings, fault)
        try:
            return (await provider.check()).findings or findings
        finally:
            await provider.aclose()
