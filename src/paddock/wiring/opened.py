"""The providers of a server: the one in use, and whatever else is enabled."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from paddock.adapters.providers import registry
from paddock.domain.errors import InvalidRequest, PaddockError, Unavailable
from paddock.interfaces.cli.toolbox import Progress
from paddock.ports.provider import Provider, SpecCheck
from paddock.services.provider_templates import Kept, Told
from paddock.services.providers import Providers
from paddock.settings import Settings
from paddock.wiring import providers as opening


@asynccontextmanager
async def in_use(settings: Settings, progress: Progress) -> AsyncIterator[Providers]:
    """The one in use and whatever else is enabled; a second one that fails is only absent (I2)."""
    default = await opening.choose(settings.provider, opening.looks(settings))
    async with AsyncExitStack() as stack:
        told = Told(progress)
        opener = await stack.enter_async_context(opening.Opener(settings, told, warm=True))
        fallback = _fallback(settings, default)
        names = dict.fromkeys((default, *settings.server.providers, *filter(None, [fallback])))
        bare = {name: await _opened(opener, name) for name in names}
        outcomes = {
            name: one if isinstance(one, str) else opening.layered(one)
            for name, one in bare.items()
        }
        opened = {name: one for name, one in outcomes.items() if not isinstance(one, str)}
        for provider in opened.values():
            stack.push_async_callback(provider.aclose)
        if isinstance(why := outcomes[default], str) and fallback not in opened:
            raise Unavailable(f"provider {default} does not open: {why}")
        absent = {name: one for name, one in outcomes.items() if isinstance(one, str)}
        kept = {
            name: Kept(
                recipes,
                partial(opener.prepare, one),
                partial(opener.is_built, one),
                opening.pool(one, settings),
            )
            for name, one in bare.items()
            if not isinstance(one, str) and (recipes := opener.templates(one)) is not None
        }
        gateways = opening.gateways(bare.values())
        yield Providers(
            opened,
            default,
            absent,
            templates=kept,
            flows=gateways,
            doors=gateways,
            checks={name: one for name, one in bare.items() if isinstance(one, SpecCheck)},
            fallback=fallback,
            outage_s=settings.server.outage_s,
        )


def _fallback(settings: Settings, default: str) -> str:
    """The one that was set, unless it is in use already."""
    name = settings.server.fallback_provider
    known = registry.names()
    if name and name not in known:
        raise InvalidRequest(
            f"server.fallback_provider is {name!r}, and there is no such provider",
            remediation=f"set it to one of: {', '.join(known)}; or leave it out",
        )
    if name and name == settings.provider:
        raise InvalidRequest(
            f"server.fallback_provider is {name}, and that is the provider in use",
            remediation="set it to another, or leave it out",
        )
    return "" if name == default else name


async def _opened(opener: opening.Opener, name: str) -> Provider | str:
    """The provider without any layer, or why there is none."""
    try:
        return await opener.open(name)
    except PaddockError as error:
        return str(error)
