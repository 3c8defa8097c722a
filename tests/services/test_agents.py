"""Which agents there are, which are ready for a team, and their programs."""

import asyncio
import json
from dataclasses import dataclass, field, replace

import pytest

from paddock.domain.agent import AGENTS, AuthFile, Need, Package, Traits
from paddock.domain.errors import Broken, Forbidden, InvalidRequest, NotFound, Unavailable
from paddock.domain.secret import AccessPolicy
from paddock.ports.agent_store import Installed
from paddock.services.agents import Agents, Had
from paddock.services.providers import Providers
from paddock.services.secrets import SecretWish
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable

PACKAGE = Package("acme", "1.0.0", "acme/agent")
CODER = Traits(
    "coder",
    "Coder",
    PACKAGE,
    needs=(Need("ANTHROPIC_API_KEY", "anthropic"), Need("OPENAI_API_KEY", "openai")),
    auth_files=(AuthFile("CODER_LOGIN", ".coder/auth.json"),),
)
COMMAND = Traits("command", "Any program")


class Known:
    """An agent of which nothing but its traits is asked here."""

    def __init__(self, traits):
        self.traits = traits


@dataclass
class Shelf:
    """Packages in memory."""

    lacks: str = ""
    there: set = field(default_factory=set)
    installs: list = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    fails: Exception | None = None

    def why_not(self):
        return self.lacks

    async def find(self, package):
        return Installed(package, "acme-1.0.0/agent") if package in self.there else None

    async def install(self, package, progress):
        self.installs.append(package)
        progress("half of it", 0.5)
        await self.go_on.wait()
        if self.fails:
            raise self.fails
        self.there.add(package)
        return await self.find(package)


class Showing(SimulatedProvider):
    @property
    def capabilities(self):
        return replace(super().capabilities, agents=True)


@pytest.fixture
async def plane():
    async with disposable(provider=Showing) as made:
        yield made


@pytest.fixture
def shelf():
    made = Shelf()
    made.go_on.set()
    return made


@pytest.fixture
async def agents(plane, shelf):
    made = _agents(plane, shelf)
    yield made
    await made.aclose()


def _agents(plane, shelf, **changes):
    services = plane.services
    known = {each.name: Known(each) for each in (CODER, COMMAND)}
    parts = {
        "store": services.store,
        "clock": services.secrets._clock,
        "providers": services.providers,
        "secrets": services.secrets,
        "bindings": services.bindings,
    }
    return Agents(known, shelf, **(parts | changes))


@pytest.fixture
async def operator(plane):
    return await plane.services.access.authenticate(plane.admin.token)


async def _log_in(plane, policy="agent_access"):
    wish = {"value": "{}", "policy": policy}
    answer = await plane.admin.call("PUT", "/v1/secrets/CODER_LOGIN", wish)
    assert answer.status < 300, answer.body


async def _coder(agents, who):
    return await agents.get(who, "coder")


async def test_what_a_team_lacks_is_said_until_nothing_is(plane, agents, operator):
    coder = await _coder(agents, operator)
    assert not coder.ready
    assert coder.lacks == (
        "no credential: `paddock secrets set ANTHROPIC_API_KEY`, then `paddock secrets bind "
        "ANTHROPIC_API_KEY --as model --route anthropic`",
    )
    assert (
        await plane.admin.call("PUT", "/v1/secrets/OPENAI_API_KEY", {"value": "k"})
    ).status < 300
    coder = await _coder(agents, operator)
    assert [(each.name, each.had) for each in coder.credentials] == [
        ("ANTHROPIC_API_KEY", Had.MISSING),
        ("OPENAI_API_KEY", Had.SET),
        ("CODER_LOGIN", Had.MISSING),
    ]
    assert "OPENAI_API_KEY is set but not bound" in coder.lacks[0]
    path = "/v1/secrets/OPENAI_API_KEY/bindings/model"
    answer = await plane.admin.call("PUT", path, {"route": "openai"})
    assert answer.status < 300, answer.body
    coder = await _coder(agents, operator)
    assert coder.ready
    assert coder.credentials[1].had is Had.BOUND


async def test_another_teams_credentials_are_nobodys(plane, agents, operator):
    await _log_in(plane)
    assert (await _coder(agents, operator)).ready
    stranger = await plane.team("strangers")
    who = await plane.services.access.authenticate(stranger.token)
    assert not (await _coder(agents, who)).ready


async def test_an_agent_without_needs_is_ready(agents, operator):
    listed = {seen.traits.name: seen for seen in await agents.list(operator)}
    assert list(listed) == ["coder", "command"]
    assert listed["command"].ready
    assert not listed["command"].installed


async def test_without_npm_only_what_is_installed_is_ready(plane, agents, shelf, operator):
    await _log_in(plane)
    shelf.lacks = "npm is not installed on this host"
    assert (await _coder(agents, operator)).lacks == (
        "not installed, and npm is not installed on this host",
    )
    shelf.there.add(PACKAGE)
    coder = await _coder(agents, operator)
    assert (coder.ready, coder.installed) == (True, True)


async def test_a_provider_that_shows_no_agents_is_named(plane, shelf, operator, tmp_path):
    bare = SimulatedProvider(tmp_path / "p", "elsewhere")
    agents = _agents(plane, shelf, providers=Providers({"elsewhere": bare}, "elsewhere"))
    coder = await _coder(agents, operator)
    assert coder.lacks[0] == "sandboxes of the provider elsewhere see none of the host's agents"


async def test_many_tasks_at_once_install_once(agents, shelf):
    shelf.go_on.clear()
    waiting = [asyncio.create_task(agents.program("coder")) for _ in range(10)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()  # who gives up ends it for nobody else
    shelf.go_on.set()
    found = await asyncio.gather(*waiting[1:])
    assert set(found) == {f"{AGENTS}/acme-1.0.0/agent"}
    assert shelf.installs == [PACKAGE]
    assert await agents.program("coder") == found[0]
    assert shelf.installs == [PACKAGE]


async def test_who_waits_hears_why_it_failed_and_the_next_tries_again(agents, shelf):
    shelf.fails = Unavailable("no way there", remediation="wait")
    with pytest.raises(Unavailable, match="no way there"):
        await agents.program("coder")
    shelf.fails = None
    assert await agents.program("coder")
    assert len(shelf.installs) == 2


async def test_the_end_of_the_server_is_heard(agents, shelf):
    shelf.go_on.clear()
    waiting = asyncio.create_task(agents.program("coder"))
    await asyncio.sleep(0.05)
    await agents.aclose()
    with pytest.raises(Broken, match="was ended with the server"):
        await waiting


async def test_operators_install_and_it_is_audited(plane, agents, shelf, operator):
    steps = [step async for step in await agents.install(operator, "coder") if step]
    assert [step.text for step in steps] == ["half of it"]
    audit = (await plane.admin.get("/v1/audit?limit=500"))["items"]
    (entry,) = [each for each in audit if each["action"] == "agent.install"]
    assert (entry["subject"], entry["detail"]["version"]) == ("coder", "1.0.0")


async def test_nobody_else_installs_and_nothing_else_is_installed(plane, agents, operator):
    stranger = await plane.team("others")
    who = await plane.services.access.authenticate(stranger.token)
    with pytest.raises(Forbidden, match="only its operators"):
        await agents.install(who, "coder")
    with pytest.raises(NotFound, match="there is no agent 'nope'"):
        await agents.install(operator, "nope")
    with pytest.raises(InvalidRequest, match="not installed by Paddock"):
        await agents.program("command")


@pytest.mark.proves("K7")
async def test_a_log_in_leaves_without_what_refreshes_it(plane, agents, operator):
    login = json.dumps({"access_token": "a", "refresh_token": "r"})
    wish = SecretWish(login, policy=AccessPolicy.AGENT_ACCESS)
    team = operator.team_id
    assert await agents.auth_files(team, CODER, "/home/user") == ()
    await plane.services.secrets.put(operator, "CODER_LOGIN", wish)
    (file,) = await agents.auth_files(team, CODER, "/home/user")
    assert (file.path, file.mode) == ("/home/user/.coder/auth.json", 0o600)
    assert json.loads(file.data) == {"access_token": "a", "refresh_token": ""}
    assert await agents.auth_files(team, COMMAND, "/home/user") == ()


@pytest.mark.proves("K7")
async def test_a_log_in_that_may_not_go_to_agents_does_not(plane, agents, operator):
    await plane.services.secrets.put(operator, "CODER_LOGIN", SecretWish("{}"))
    with pytest.raises(Forbidden, match="does not go to the agent"):
        await agents.auth_files(operator.team_id, CODER, "/home/user")
    coder = await _coder(agents, operator)
    assert coder.lacks == (
        "CODER_LOGIN is set but may not go to agents: `paddock secrets set CODER_LOGIN "
        "--policy agent_access`",
    )
