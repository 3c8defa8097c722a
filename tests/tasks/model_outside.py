"""A scripted model as if it were somewhere on the internet: behind TLS, in a network of its own,
and only for who has the key."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paddock.testing.models import Script, ScriptedModel
from tests.upstreams import Upstream, outside

NAME = "model.example"
_RELAY = """
import asyncio, ssl, sys

async def splice(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):
        pass
    finally:
        writer.close()

async def relay(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    with open(sys.argv[2], "ab") as seen:
        seen.write(head)
    there, here = await asyncio.open_unix_connection(sys.argv[3] + "/model.sock")
    here.write(head)
    await asyncio.gather(splice(reader, here), splice(there, writer), return_exceptions=True)

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    await asyncio.start_server(relay, "0.0.0.0", 443, ssl=context)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@dataclass(frozen=True)
class ModelOutside:
    model: ScriptedModel
    there: Upstream

    @property
    def base_url(self) -> str:
        return f"https://{NAME}"

    @property
    def heads(self) -> str:
        """Everything that it was sent but the bodies."""
        return self.there.seen.read_text(errors="replace")


@asynccontextmanager
async def model_outside(*scripts: Script) -> AsyncIterator[ModelOutside]:
    async with (
        ScriptedModel(*scripts) as model,
        outside((NAME,), sys.executable, "-c", _RELAY) as there,
    ):
        async with _behind(there.seen.parent / "model.sock", model):
            yield ModelOutside(model, there)


@asynccontextmanager
async def _behind(path: Path, model: ScriptedModel) -> AsyncIterator[None]:
    host, _, port = model.url.removeprefix("http://").partition(":")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(host, int(port))
        with suppress(OSError):
            await asyncio.gather(_copy(reader, forth), _copy(back, writer))

    server = await asyncio.start_unix_server(pass_on, path)
    try:
        yield
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
