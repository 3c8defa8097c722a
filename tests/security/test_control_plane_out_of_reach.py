"""From inside a sandbox of a real server: neither its API nor another team's sandbox is reached."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.control_plane import Client
from tests.upstreams import gateway_of, upstream
from tests.wiring_server import Server, server

pytestmark = pytest.mark.timeout(240)
PROXY = "http://127.0.0.1:3128"
MARK = "only-for-this-team"
EVERYTHING = ["*:*", "0.0.0.0/0:*", "10.0.0.0/8:*", "172.16.0.0/12:*", "192.168.0.0/16:*"]
LOOP = {"127.0.0.1"}
_ADDRESSES = """
import fcntl, socket, struct
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _, name in socket.if_nameindex():
    try:
        found = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()))
        print(socket.inet_ntoa(found[20:24]))
    except OSError:
        pass
"""


@dataclass
class Box:
    """A sandbox, and the team that it belongs to."""

    team: Client
    id: str

    async def run(self, *argv: str) -> tuple[int, str]:
        body = {"cmd": list(argv), "timeout_s": 30}
        answer = await self.team.post(f"/v1/sandboxes/{self.id}/exec", body)
        assert answer.status == 200, answer.body
        return answer["exit_code"], answer["stdout"] + answer["stderr"]

    async def curl(self, *more: str) -> tuple[int, str]:
        return await self.run("curl", "-sS", "-i", "-m", "8", *more)


@dataclass
class Plane:
    """A server that listens on every address of this host."""

    made: Server
    outer: str
    """One of them, on a cable."""
    upstream: str
    boxes: list[Box] = field(default_factory=list)

    async def box(self, team: Client | None = None, **egress: object) -> Box:
        team = team or self.made.admin
        answer = await team.post(
            "/v1/sandboxes", {"egress": {"preset": "", **egress}}, within_s=150
        )
        assert answer.status == 201, answer.body
        self.boxes.append(Box(team, answer["id"]))
        return self.boxes[-1]

    async def team(self, name: str) -> Client:
        answer = await self.made.admin.post("/v1/teams", {"name": name})
        assert answer.status == 201, answer.body
        return Client(self.made.url, answer["token"]["token"], self.made.admin.session)

    @property
    def places(self) -> list[str]:
        """How one might name the API."""
        named = ("127.0.0.1", self.outer, "loop.example", "host.example")
        return [f"http://{each}:{self.made.port}/v1/sandboxes" for each in named]


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.slow)])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[Plane]:
    async with upstream("up.example") as there:
        outer = gateway_of(there.address)
        names = {"loop.example": "127.0.0.1", "host.example": outer, "up.example": there.address}
        settings = {"egress__hosts": json.dumps(names), "server__host": "0.0.0.0"}
        if request.param == "docker":
            settings |= {
                "provider": "docker",
                "docker__host": request.getfixturevalue("engine_host"),
                "docker__installation": f"reach-{os.getpid()}",
            }
        async with server(**settings) as made:
            yield Plane(made, outer, there.address)


@pytest.fixture
async def tidy(plane: Plane) -> AsyncIterator[Plane]:
    try:
        yield plane
    finally:
        for box in plane.boxes:
            await box.team.delete(f"/v1/sandboxes/{box.id}")
        plane.boxes.clear()


async def listens(plane: Plane) -> None:
    """From this host it is there, at each of the addresses, and has something to tell."""
    for host in ("127.0.0.1", plane.outer):
        there = Client(f"http://{host}:{plane.made.port}", "", plane.made.admin.session)
        assert (await there.get("/v1/sandboxes")).status == 401
        known = Client(there.url, plane.made.admin.token, plane.made.admin.session)
        assert plane.boxes[0].id in str((await known.get("/v1/sandboxes")).body)


WAYS = ((), ("-x", PROXY), ("-x", PROXY, "-p"))


def refuses(way: tuple[str, ...], code: int, said: str, *statuses: str) -> bool:
    """The gateway does, in its words; without a proxy it may also be that nobody is there: the
    sandbox's own loopback, or a name that is not known inside."""
    begins = tuple(f"HTTP/1.1 {each} " for each in statuses or ("403",))
    if "-p" in way:
        return code == 56 and said.startswith(begins)
    by_gateway = said.startswith(begins) and "X-Paddock-Egress: denied" in said
    return by_gateway or (not way and code in (6, 7))


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "rules", [["up.example"], ["*"], EVERYTHING], ids=["one host", "any host", "all addresses"]
)
async def test_no_allowlist_leads_to_the_api(tidy: Plane, rules: list[str]):
    if rules is EVERYTHING:  # an operator may, and it is of no use
        named = ("127.0.0.1/32", f"{tidy.outer}/32", "loop.example", "host.example")
        rules = [*(f"{each}:*" for each in named), *rules]
    box = await tidy.box(rules=rules)
    await listens(tidy)
    assert (await box.curl("http://up.example/"))[1].startswith("HTTP/1.1 200 ")
    token = f"Authorization: Bearer {tidy.made.admin.token}"
    for url in tidy.places:
        for way in WAYS:
            # Not even with a token that would open it: it is not asked at all.
            code, said = await box.curl(*way, "-H", token, url)
            assert refuses(way, code, said), (url, way, code, said)
            assert '"items"' not in said


@pytest.mark.proves("P16")
async def test_an_open_network_leads_to_the_api_only_as_far_as_its_door(tidy: Plane):
    box = await tidy.box(mode="open")
    await listens(tidy)
    for url in tidy.places:
        code, said = await box.curl(url)
        assert code in (6, 7, 28) or said.startswith("HTTP/1.1 401 "), (url, code, said)
        assert box.id not in said


# Packets between open networks are dropped, so a connection there ends by its time limit.
@pytest.mark.proves("P16")
@pytest.mark.parametrize("mode", ["allowlist", pytest.param("open", marks=pytest.mark.slow)])
async def test_another_teams_sandbox_is_not_reached(tidy: Plane, mode: str):
    """Whatever an operator's rules allow, at any address that the other believes to have."""
    theirs = await tidy.team(f"neighbours-{mode}")
    wish = {"rules": ["*:*"]} if mode == "allowlist" else {"mode": mode}
    other = await tidy.box(theirs, **wish)
    serve = f"mkdir /tmp/w && cd /tmp/w && echo {MARK} > index.html && python3 -m http.server 8080"
    started = await theirs.post(
        f"/v1/sandboxes/{other.id}/commands", {"cmd": ["sh", "-c", f"{serve} --bind 0.0.0.0"]}
    )
    assert started.status in (200, 201, 202), started.body
    async with asyncio.timeout(60):
        while MARK not in (await other.curl("http://127.0.0.1:8080/"))[1]:
            await asyncio.sleep(0.2)
    found = set((await other.run("python3", "-c", _ADDRESSES))[1].split())
    assert found
    for address in found:
        assert MARK in (await other.curl(f"http://{address}:8080/"))[1]
    if mode == "open":
        async with tidy.made.admin.session.get(f"http://{max(found - LOOP)}:8080/") as answer:
            assert MARK in await answer.text(), "from this host it can be reached"
    opened = [f"{address}/32:*" for address in found - LOOP]
    one = await tidy.box(rules=[*EVERYTHING, *opened])
    for address in found | LOOP:
        for way in WAYS:
            code, said = await one.curl(*way, f"http://{address}:8080/")
            assert MARK not in said
            # The gateway may not, or this host does not let it.
            assert refuses(way, code, said, "403", "502"), (address, way, code, said)
    if mode == "open":
        beside = await tidy.box(mode="open")
        code, said = await beside.curl(f"http://{max(found - LOOP)}:8080/")
        assert (code in (7, 28), MARK in said) == (True, False), (code, said)
