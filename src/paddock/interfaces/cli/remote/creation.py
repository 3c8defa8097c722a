"""Waiting for a new sandbox: its progress is shown, and an interrupt says what remains."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from paddock.interfaces.cli.progress import Display
from paddock.interfaces.client import AsyncSandbox, Server
from paddock.interfaces.client.creation import Creation


async def created(server: Server, options: Mapping[str, Any], *, quiet: bool) -> AsyncSandbox:
    """The sandbox once it runs. If this is interrupted, the server still creates it."""
    creation = Creation(server, options)
    try:
        return await followed(creation, quiet=quiet)
    except asyncio.CancelledError:
        click.echo(f"interrupted: {remainder(creation)}", err=True)
        raise


async def followed(creation: Creation, *, quiet: bool) -> AsyncSandbox:
    """The same; after an interrupt the creation knows its sandbox, unless a second one came."""
    asking = asyncio.ensure_future(creation.begin())
    try:
        await asyncio.shield(asking)
    except asyncio.CancelledError:
        await asking
        raise
    with Display() as display:
        return await creation.finish(_silent if quiet else display.tell)


def remainder(creation: Creation) -> str:
    """Return a message that says what an interrupted creation leaves on the server."""
    if (info := creation.info) is None:
        return "the server may still create the sandbox; check with `paddock ls`"
    if info.state == "creating":
        return f"the server continues to create {info.name}; `paddock rm {info.name}` cancels it"
    return f"sandbox {info.name} was created; `paddock rm {info.name}` removes it"


def _silent(_text: str, _fraction: float | None) -> None:
    return
