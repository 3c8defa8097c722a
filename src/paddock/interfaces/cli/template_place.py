"""Where templates are kept: on the server or, where none runs, in this machine's data directory."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import click

from paddock.domain.errors import Unsupported
from paddock.interfaces.cli.invocation import Invocation
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.remote.session import connected
from paddock.interfaces.cli.toolbox import Opened, Templates
from paddock.interfaces.client import PaddockError, Server
from paddock.interfaces.client.failures import was_unreachable
from paddock.interfaces.client.place import is_said

T = TypeVar("T")


async def server_or_here(
    on_server: Callable[[Server], Awaitable[T]],
    here: Callable[[], Awaitable[T]],
    *,
    changes: bool = True,
) -> T:
    """Ask the server. If none was named and none runs on this machine, act here; what `changes`
    something says so."""
    try:
        async with connected() as server:
            return await on_server(server)
    except PaddockError as error:
        if is_said() or not was_unreachable(error):
            raise
    if changes:
        click.echo("no server runs here: using this machine's data directory", err=True)
    return await here()


@asynccontextmanager
async def opened(invocation: Invocation, provider: str) -> AsyncIterator[tuple[Opened, Templates]]:
    """The provider on this machine, and its templates."""
    with Display() as display:
        async with invocation.tools.open(provider, display.tell) as found:
            if found.templates is None:
                raise Unsupported(
                    f"provider {found.provider.name} keeps no templates of its own",
                    remediation="add --provider local, or run `export PADDOCK_PROVIDER=local`",
                )
            yield found, found.templates
