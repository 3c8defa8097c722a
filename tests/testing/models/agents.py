"""Real agents, at pinned versions, set up so that they talk to a scripted model and nobody else."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.adapters.agents.store import NpmAgentStore
from paddock.domain.agent import Package
from paddock.domain.errors import PaddockError
from tests.engines import AGENTS

ECHO = [sys.executable, str(Path(__file__).with_name("echo_mcp.py"))]

# Whatever should want to leave this host ends at a port where nobody listens.
_NOWHERE = "http://127.0.0.1:9"
FENCE = {
    "HTTP_PROXY": _NOWHERE,
    "HTTPS_PROXY": _NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}

_CODEX = """
model_provider = "scripted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
[analytics]
enabled = false
[features]
plugins = false
apps = false
remote_plugin = false
plugin_discovery_prefetch = false
unbounded_connection_retries = false
[mcp_servers.echo]
command = {command}
args = {args}
"""
_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "telemetry": {"enabled": False},
    "mcpServers": {"echo": {"command": ECHO[0], "args": ECHO[1:], "trust": True}},
}


class NotInstalled(Exception):
    """The agent cannot be had on this machine, and why."""


CLAUDE = Package("@anthropic-ai/claude-code", "2.1.325", "@anthropic-ai/claude-code-linux-*/claude")
CODEX = Package("@openai/codex", "0.166.0", "@openai/codex-linux-*/vendor/*/bin/codex")
OPENCODE = Package("opencode-ai", "1.18.33", "opencode-linux-*/bin/opencode")
GEMINI = Package("@google/gemini-cli", "0.61.0", ".bin/gemini")


def install(package: Package) -> Path:
    """The program, as the server would install it, in a place that all tests share."""
    with ThreadPoolExecutor(1) as apart:  # who asks may have a loop that runs
        return apart.submit(asyncio.run, _installed(package)).result()


async def _installed(package: Package) -> Path:
    store = NpmAgentStore(AGENTS)
    try:
        found = await store.find(package) or await store.install(package, lambda _text, _part: None)
    except PaddockError as error:
        raise NotInstalled(error.message) from error
    return AGENTS / found.program


@dataclass(frozen=True)
class Place:
    """Where an agent works: a home of its own, and a workspace."""

    home: Path
    workspace: Path

    @classmethod
    def under(cls, directory: Path) -> "Place":
        place = cls(directory / "home", directory / "workspace")
        place.home.mkdir()
        place.workspace.mkdir()
        return place

    def environment(self, **more: str) -> dict[str, str]:
        own = {"HOME": str(self.home), "PWD": str(self.workspace), "PATH": os.environ["PATH"]}
        return {**own, **FENCE, **more}


@dataclass(frozen=True)
class Launch:
    """What to start, with what on its standard input."""

    command: list[str]
    environment: dict[str, str]
    stdin: bytes = b""


def claude(
    program: Path, place: Place, url: str, prompt: str, model: str = "claude-sonnet-4-5"
) -> Launch:
    environment = place.environment(
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_API_KEY="scripted",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_MAX_RETRIES="3",
        IS_SANDBOX="1",
    )
    options = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    options += ["--dangerously-skip-permissions", "--model", model]
    servers = {"echo": {"type": "stdio", "command": ECHO[0], "args": ECHO[1:]}}
    options += ["--strict-mcp-config", "--mcp-config", json.dumps({"mcpServers": servers})]
    return Launch([str(program), "-p", *options], environment, claude_says(prompt))


def claude_says(text: str) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"type": "user", "message": message}).encode() + b"\n"


def codex(program: Path, place: Place, url: str, prompt: str, model: str = "gpt-5.5") -> Launch:
    home = place.home / ".codex"
    home.mkdir()
    (home / "config.toml").write_text(
        _CODEX.format(url=url, command=json.dumps(ECHO[0]), args=json.dumps(ECHO[1:]))
    )
    options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    environment = place.environment(CODEX_HOME=str(home), SCRIPTED_KEY="scripted")
    return Launch([str(program), "exec", *options, "-m", model, prompt], environment)


def opencode(
    program: Path, place: Place, url: str, prompt: str, sdk: str = "openai-compatible"
) -> Launch:
    base = f"{url}/v1beta" if sdk == "google" else f"{url}/v1"
    limit = {"context": 200_000, "output": 16_000}
    provider = {
        "npm": f"@ai-sdk/{sdk}",
        "name": "Scripted",
        "options": {"baseURL": base, "apiKey": "scripted"},
        "models": {"scripted": {"name": "Scripted", "limit": limit, "tool_call": True}},
    }
    settings = {"autoupdate": False, "share": "disabled", "permission": "allow"}
    servers = {"echo": {"type": "local", "command": ECHO, "enabled": True}}
    models = {"model": "own/scripted", "small_model": "own/scripted", "provider": {"own": provider}}
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    environment = place.environment(
        OPENCODE_CONFIG_CONTENT=json.dumps({**settings, **models, "mcp": servers}),
        **{f"OPENCODE_DISABLE_{name}": "1" for name in switches},
        **{
            f"XDG_{kind}_HOME": f"{place.home}/{kind}" for kind in "DATA CONFIG CACHE STATE".split()
        },
    )
    return Launch([str(program), "run", "--format", "json", "--auto"], environment, prompt.encode())


def gemini(program: Path, place: Place, url: str, prompt: str) -> Launch:
    (place.home / ".gemini").mkdir()
    (place.home / ".gemini" / "settings.json").write_text(json.dumps(_GEMINI))
    environment = place.environment(
        GEMINI_CLI_HOME=str(place.home),
        GEMINI_API_KEY="scripted",
        GOOGLE_GEMINI_BASE_URL=url,
        GEMINI_CLI_TRUST_WORKSPACE="true",
        GEMINI_CLI_NO_RELAUNCH="true",
        NO_BROWSER="1",
    )
    options = ["-o", "stream-json", "--yolo", "-m", "gemini-2.5-pro"]
    return Launch([str(program), "-p", prompt, *options], environment)


def gemini_with_login(program: Path, place: Place, url: str, prompt: str) -> Launch:
    """As if a person had logged in with Google, which goes by Code Assist's API."""
    launch = gemini(program, place, url, prompt)
    login = {"auth": {"selectedType": "oauth-personal"}, "folderTrust": {"enabled": False}}
    settings = json.dumps({**_GEMINI, "security": login})
    (place.home / ".gemini" / "settings.json").write_text(settings)
    environment = {
        **launch.environment,
        "GOOGLE_GENAI_USE_GCA": "true",
        "GOOGLE_CLOUD_ACCESS_TOKEN": "scripted",
        "CODE_ASSIST_ENDPOINT": url,
    }
    del environment["GEMINI_API_KEY"]
    return replace(launch, environment=environment)


@asynccontextmanager
async def started(launch: Launch, place: Place) -> AsyncIterator[asyncio.subprocess.Process]:
    """The agent, with all that it started gone in the end."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *launch.command,
        env=launch.environment,
        cwd=place.workspace,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def run(launch: Launch, place: Place, timeout_s: float = 90) -> list[dict[str, object]]:
    """The events of the agent's output, once it has ended well."""
    async with started(launch, place) as process:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(launch.stdin)
        assert process.returncode == 0, (out[-2000:], err[-2000:])
    return [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
