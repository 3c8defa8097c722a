"""`paddock test-model`: agents work with a scripted model instead of a paid one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import click

from paddock.domain.broker.models import KNOWN
from paddock.domain.errors import InvalidRequest, NotFound
from paddock.interfaces.cli.interrupts import run_until_stopped
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.remote.session import connected
from paddock.interfaces.client import AsyncSecrets, Server

_ROUTES = {"anthropic": "", "openai": "/v1", "gemini": ""}
"""The APIs of the scripted model, with the path of each base URL."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_KEY = "scripted"
_READY = """scripted model at {url}
It answers all agents of the app {app} until you press Ctrl-C. Try, in another terminal:
  paddock task run --app {app} --agent claude_code 'write hello.txt'
"""


@click.command("test-model")
@click.argument("script", type=click.Path(path_type=Path))
@click.option("--app", default="test-model", show_default=True, help="App whose agents use it.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port, 0 for any free one.")
@pass_invocation
def test_model(invocation: Invocation, script: Path, app: str, port: int) -> None:
    """Run agents with a scripted model.

    Serves the scripts of a TOML file and sets the model routes of an app, so that its agents need
    no key and no network. Run it on the server's machine, as an operator.
    """

    async def work() -> None:
        async with (
            connected() as server,
            invocation.tools.scripted_model(script, port) as url,
            _routes(_on_this_machine(server), url, app),
        ):
            click.echo(_READY.format(url=url, app=app), nl=False)
            await asyncio.Event().wait()

    run_until_stopped(work())


def _on_this_machine(server: Server) -> Server:
    host = urlsplit(server.url).hostname or ""
    if host and host not in _LOOPBACK:
        raise InvalidRequest(
            f"the server is {server.url}, but the scripted model can only be reached from this "
            "machine",
            remediation="run `paddock test-model` on the server's machine",
        )
    return server


@asynccontextmanager
async def _routes(server: Server, url: str, app: str) -> AsyncIterator[None]:
    """The app's routes lead to the model while this is open. Keys of the team stay as they are."""
    keys = {KNOWN[route].key_variable: route for route in _ROUTES}
    taken = {each.name async for each in AsyncSecrets.list(app=app, server=server)} & keys.keys()
    if taken:
        raise InvalidRequest(
            f"the app {app} has keys of its own: {', '.join(sorted(taken))}",
            remediation="name another app with --app, or remove them with `paddock secrets rm`",
        )
    try:
        for key, route in keys.items():
            await AsyncSecrets.set(key, _KEY, app=app, server=server)
            base_url = f"{url}{_ROUTES[route]}"
            await AsyncSecrets.bind_model(key, route, base_url=base_url, app=app, server=server)
        yield
    finally:
        for key in keys:
            with suppress(NotFound):
                await AsyncSecrets.unbind(key, "model", app=app, server=server)
            with suppress(NotFound):
                await AsyncSecrets.delete(key, app=app, server=server)
