"""Real agents in real sandboxes, with nothing but a placeholder for a key."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.domain.agent import AGENTS, Package
from paddock.ports.egress import Credential
from paddock.testing.models import Script, ScriptedModel, Turn, Usage, WriteFile
from tests.conftest import Need
from tests.engines import AGENTS as KEPT
from tests.security.egress_world import World, on_docker, on_local
from tests.testing.models import agents
from tests.testing.models.agents import CLAUDE, CODEX, GEMINI, OPENCODE, NotInstalled
from tests.upstreams import Upstream, gateway_of, upstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
KEY = "sk-the-real-key-0123456789"
PLACEHOLDER = "pdk-MODEL-0123456789abcdef0123456789abcdef"
MODEL = "llm.example"
URL = "http://own.models.paddock.internal"
# Only who comes with the real key is answered.
SCRIPT = Script(
    (
        Turn(calls=(WriteFile("a.txt", "written\n"),), usage=Usage(1000, 50)),
        Turn(say="All done.", usage=Usage(1100, 10)),
    ),
    key=KEY,
)
_CODEX = (
    "-c model_provider=own -c model_providers.own.name=own -c model_providers.own.env_key=KEY "
    f"-c model_providers.own.base_url={URL}/v1 -c model_providers.own.wire_api=responses"
)

_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "permission": "allow",
    "model": "own/scripted",
    "small_model": "own/scripted",
    "provider": {
        "own": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Own",
            "options": {"baseURL": f"{URL}/v1", "apiKey": PLACEHOLDER},
            "models": {"scripted": {"name": "Scripted", "tool_call": True}},
        }
    },
}
_OFF = " ".join(
    f"OPENCODE_DISABLE_{name}=1"
    for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
)
_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
}


@dataclass(frozen=True)
class Cli:
    """How an agent is started by a shell in a sandbox."""

    package: Package
    dialect: str
    command: str


CLIS = {
    "claude": Cli(
        CLAUDE,
        "anthropic",
        f"ANTHROPIC_BASE_URL={URL} ANTHROPIC_API_KEY=$KEY IS_SANDBOX=1 "
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 {program} -p 'write a.txt' "
        "--dangerously-skip-permissions --model claude-sonnet-4-5",
    ),
    "codex": Cli(
        CODEX,
        "openai",
        "{program} exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "
        f"{_CODEX} -m gpt-5.5 'write a.txt'",
    ),
    "opencode": Cli(
        OPENCODE,
        "openai",
        f"OPENCODE_CONFIG_CONTENT='{json.dumps(_OPENCODE)}' {_OFF} {{program}} run 'write a.txt'",
    ),
    "gemini": Cli(
        GEMINI,
        "gemini",
        f"mkdir ~/.gemini && echo '{json.dumps(_GEMINI)}' > ~/.gemini/settings.json && "
        f"GOOGLE_GEMINI_BASE_URL={URL} GEMINI_API_KEY=$KEY GEMINI_CLI_TRUST_WORKSPACE=true "
        "GEMINI_CLI_NO_RELAUNCH=true NO_BROWSER=1 {program} -p 'write a.txt' --yolo "
        "-m gemini-2.5-pro",
    ),
}


@asynccontextmanager
async def in_tls(model: ScriptedModel, there: Upstream) -> AsyncIterator[None]:
    """The model at an address that sandboxes might be let to, behind a certificate of its name."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(there.certificate)
    host, _, port = model.url.removeprefix("http://").partition(":")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, outer), copy(inner, writer))

    address = gateway_of(there.address)
    async with await asyncio.start_server(relay, address, 8443, ssl=context):
        yield


@pytest.fixture(scope="module", params=["local-crun", "docker"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    KEPT.mkdir(parents=True, exist_ok=True)
    async with upstream(MODEL) as there:
        known = {MODEL: gateway_of(there.address)}
        egress = EgressConfig(hosts=known, certificates=str(there.certificate))
        if request.param == "docker":
            request.getfixturevalue("base_image")
            host = request.getfixturevalue("engine_host")
            opening = on_docker(host, egress, KEPT)
        else:
            opening = on_local("crun", egress, KEPT)
        async with opening as provider:
            yield World(provider, there)


@pytest.mark.proves("K5")
@pytest.mark.parametrize("name", CLIS)
async def test_an_agent_works_with_a_placeholder_only(world: World, name: str, need: Need):
    cli = CLIS[name]
    try:
        program = await asyncio.to_thread(agents.install, cli.package)
    except NotInstalled as error:
        need(name, str(error))
    inside = f"{AGENTS}/{program.relative_to(KEPT)}"
    route = Credential(
        secret="MODEL",
        placeholder=PLACEHOLDER,
        hosts=[f"{MODEL}:8443"],
        way="model",
        value=KEY,
        route="own",
        dialect=cli.dialect,
        account="team/sandbox one",
    )
    here = gateway_of(world.there.address)
    async with (
        ScriptedModel(SCRIPT) as model,
        in_tls(model, world.there),
        world.sandbox(f"{here}/32:8443", by_operator=True) as box,
    ):
        assert await world.gateway.give(box.ref.id, f"mark-{name}", [route])
        done = await box.guest.exec(
            [
                "bash",
                "-c",
                f"mkdir ~/w && cd ~/w && {cli.command.replace('{program}', inside)} </dev/null",
            ],
            user="user",
            env={"KEY": PLACEHOLDER},
            timeout=120,
        )
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.exit_code == 0, (said, model.problems)
        assert "All done." in said
        written = await box.guest.exec(["bash", "-c", "cat ~/w/a.txt"], user="user")
        assert written.stdout == b"written\n"
        assert KEY not in said
        assert len(model.turns) >= 2
        # Nothing but the route is open: what an agent wants elsewhere does not exist to it.
        flows = await world.flows(box.ref)
        assert {flow.host for flow in flows if flow.allowed} <= {
            MODEL,
            "own.models.paddock.internal",
        }
