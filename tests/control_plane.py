"""A real control plane for tests: its own database and provider, on a port of its own."""

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from paddock.domain.records import INSTALLATION_LABEL
from paddock.interfaces.api.context import Services
from paddock.ports.provider import Provider
from paddock.services.providers import Providers
from paddock.settings import Settings
from paddock.testing.reference import ReferenceProvider
from paddock.wiring.listening import listening
from paddock.wiring.rounds import Rounds
from paddock.wiring.server import TOKEN_FILE, assembled
from paddock.wiring.tracing import traced
from tests.databases import furnish_database


@dataclass
class Answer:
    status: int
    body: Any
    headers: Any = None

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def error(self) -> dict[str, Any]:
        return self.body["error"]


@dataclass
class Client:
    """Somebody with a token."""

    url: str
    token: str
    session: aiohttp.ClientSession

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        headers |= more.pop("headers", {})
        if body is not None:
            more["json"] = body
        patience = aiohttp.ClientTimeout(more.pop("within_s", 60))
        async with self.session.request(
            method, self.url + path, headers=headers, timeout=patience, **more
        ) as response:
            content = await response.read()
            is_json = response.content_type == "application/json"
            parsed = json.loads(content) if is_json and content else content
            return Answer(response.status, parsed, response.headers)

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.call("GET", path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return await self.call("POST", path, {} if body is None else body, **more)

    async def delete(self, path: str, **more: Any) -> Answer:
        return await self.call("DELETE", path, **more)

    async def lines(
        self, method: str, path: str, body: Any = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The messages of an NDJSON stream."""
        headers = {"authorization": f"Bearer {self.token}"}
        async with self.session.request(
            method, self.url + path, headers=headers, json=body
        ) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if line.strip():
                    yield json.loads(line)


@dataclass
class Plane:
    """The control plane and its first admin."""

    url: str
    services: Services
    rounds: Rounds
    admin: Client
    session: aiohttp.ClientSession
    place: Path

    def client(self, token: str) -> Client:
        return Client(self.url, token, self.session)

    async def team(self, name: str) -> Client:
        """The first admin of a new team."""
        answer = await self.admin.post("/v1/teams", {"name": name})
        assert answer.status == 201, answer.body
        return self.client(answer["token"]["token"])

    async def member(self, **wish: Any) -> Client:
        answer = await self.admin.post("/v1/tokens", {"name": "test", **wish})
        assert answer.status == 201, answer.body
        return self.client(answer["token"])


@asynccontextmanager
async def running(
    place: Path,
    provider: Callable[[Path], Provider | Awaitable[Provider]] = ReferenceProvider,
    *,
    auth: bool = True,
    fallback: Callable[[Path], Provider] | None = None,
    settings: Settings | None = None,
    database: str = "",
) -> AsyncIterator[Plane]:
    """Serve until the block ends; what is in `place` is found again by the next one."""
    settings = settings or Settings()
    data = place / "data"
    server = replace(settings.server, data_dir=data, port=0, database=database)
    settings = replace(settings, server=server)
    if not database:
        await furnish_database(data)
    made_of = provider(place / "p")
    opened = await made_of if isinstance(made_of, Awaitable) else made_of
    other = fallback(place / "f") if fallback else None
    both = {each.name: each for each in (opened, other) if each is not None}
    more = {"fallback": other.name if other else "", "outage_s": server.outage_s}
    providers = Providers(both, opened.name, **more)
    try:
        async with (
            traced(settings.telemetry) as trace,
            assembled(settings, providers, auth=auth, trace=trace) as made,
            listening(settings.server, made.services) as url,
            aiohttp.ClientSession() as session,
        ):
            token = (data / TOKEN_FILE).read_text().strip()
            admin = Client(url, token, session)
            yield Plane(url, made.services, made.rounds, admin, session, place)
    finally:
        for each in both.values():
            await each.aclose()


@asynccontextmanager
async def beside(
    plane: Plane,
    provider: Callable[[Path], Provider | Awaitable[Provider]],
    database: str,
) -> AsyncIterator[Plane]:
    """Another control plane on the same database, with the same keys and the same first admin."""
    with tempfile.TemporaryDirectory(prefix="pd-") as made:
        data = Path(made) / "data"
        data.mkdir(mode=0o700)
        for name in (TOKEN_FILE, "master-key"):
            shutil.copy(plane.place / "data" / name, data / name)
        async with running(Path(made), provider, database=database) as other:
            yield other


@asynccontextmanager
async def disposable(**more: Any) -> AsyncIterator[Plane]:
    """A control plane that nothing remains of."""
    place = Path(tempfile.mkdtemp(prefix="pd-"))
    try:
        async with running(place, **more) as plane:
            try:
                yield plane
            finally:
                await remove_all(plane)
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def remove_all(plane: Plane) -> None:
    """Only what this control plane made: others may use the same provider."""
    read = plane.services.store.read
    installation = str(await read(lambda tx: tx.values.get("installation")))
    for _, provider in plane.services.providers:
        async for found in provider.find({INSTALLATION_LABEL: installation}):
            await provider.destroy(found.ref)
