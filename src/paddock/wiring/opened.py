"""The providers of a server: the one in use, and whatever else is enabled."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from paddock.domain.errors import PaddockError, Unavailable
from paddock.interfaces.cli.toolbox import Progress
from paddock.ports.provider import Provider
from paddock.services.providers import Providers
from paddock.services.templates import Kept, Told
from paddock.settings import Settings
from paddock.wiring import providers as opening


@asynccontextmanager
async def in_use(settings: Settings, progress: Progress) -> AsyncIterator[Providers]:
    """The one in use and whatever else is enabled; a second one that fails is only absent (I2)."""
    default = await opening.choose(settings.provider, opening.looks(settings))
    async with AsyncExitStack() as stack:
        told = Told(progress)
        opener = await stack.enter_async_context(opening.Opener(settings, told, warm=True))
        names = dict.fromkeys((default, *settings.server.providers))
        bare = {name: await _opened(opener, name) for name in names}
        outcomes = {
            name: one if isinstance(one, str) else opening.layered(one)
            for name, one in bare.items()
        }
        opened = {name: one for name, one in outcomes.items() if not isinstance(one, str)}
        for provider in opened.values():
            stack.push_async_callback(provider.aclose)
        if isinstance(why := outcomes[default], str):
            raise Unavailable(f"provider {default} does not open: {why}")
        absent = {name: one for name, one in outcomes.items() if isinstance(one, str)}
        kept = {
            name: Kept(recipes, partial(opener.prepare, one), told, opening.pool(one, settings))
            for name, one in bare.items()
            if not isinstance(one, str) and (recipes := opener.templates(one)) is not None
        }
        gateways = opening.gateways(bare.values())
        yield Providers(opened, default, absent, templates=kept, flows=gateways, doors=gateways)


async def _opened(opener: opening.Opener, name: str) -> Provider | str:
    """The provider without any layer, or why there is none."""
    try:
        return await opener.open(name)
    except PaddockError as error:
        return str(error)
