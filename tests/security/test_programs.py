"""What developers use, behind the preset `development` and with nothing set up inside for it.

The programs are real and ask for the names that they always ask for; what answers there is ours.
"""

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.presets import shipped_presets
from paddock.domain.egress.rule import parse
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.registries import PACKAGE, SAID, Registries, registries
from tests.security.egress_world import Inside, World, allowlist, on_docker, on_local

pytestmark = pytest.mark.timeout(240)

PRESET = shipped_presets()["development"]


@dataclass
class Workplace:
    """A sandbox as an agent finds it, and the servers behind the names that its programs know."""

    inside: Inside
    there: Registries
    index: str
    """pip's own, npm's own, apt's own, and a host of git repositories."""
    registry: str
    archive: str
    forge: str

    async def does(self, command: str, user: str = "user") -> str:
        done = await self.inside.guest.exec(["bash", "-c", command], user=user, timeout=120)
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.exit_code == 0, said
        return said


async def names_inside(inside: Inside) -> tuple[str, str, str, str]:
    """Where the programs look by themselves; git is told in every command, so any host will do."""
    index = await inside.python(
        "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    )
    _, registry = await inside.run("npm", "config", "get", "registry")
    _, sources = await inside.run("cat", "/etc/apt/sources.list")
    forge = next(rule.host for rule in map(parse, PRESET) if (22, 22) in rule.ports)
    index, registry, archive = (
        re.findall(r"https?://([^/\s]+)", said)[0] for said in (index, registry, sources)
    )
    return index, registry, archive, forge


@pytest.fixture(
    scope="module", params=["local-crun", pytest.param("docker", marks=pytest.mark.slow)]
)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Workplace]:
    async with AsyncExitStack() as stack:
        if request.param == "docker":
            request.getfixturevalue("base_image")
            opening = on_docker(request.getfixturevalue("engine_host"), EgressConfig())
        else:
            opening = on_local("crun", EgressConfig())
        provider = await stack.enter_async_context(opening)
        spec = SandboxSpec(template="base", egress=allowlist(*PRESET))
        made = await provider.create("programs", spec)
        stack.push_async_callback(provider.destroy, made.ref)
        guest = await stack.enter_async_context(Guest(await provider.guest(made.ref)))
        inside = Inside(World(provider, None), made.ref, guest)
        names = await names_inside(inside)
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdk-registries-")))
        there = await stack.enter_async_context(registries(root, names[1:2] + names))
        gateway = inside.world.gateway
        gateway.config = EgressConfig(hosts=dict.fromkeys(names, there.address))
        await gateway.close_ports(frozenset())
        await guest.files.write("/tmp/authority.pem", there.authority.encode())
        trusts = await guest.exec(
            ["sh", "-c", "cat /tmp/authority.pem >> $SSL_CERT_FILE"], user="root"
        )
        assert trusts.exit_code == 0
        yield Workplace(inside, there, *names)


@pytest.mark.proves("P16")
async def test_apt_installs_a_package(place: Workplace):
    """The archive is ours, so it is not signed by Debian's key; that alone is said inside."""
    line = f"deb [trusted=yes] http://{place.archive}/debian-sample ./"
    sudo = "sudo -n " if "docker" not in place.inside.ref.provider else ""
    user = "user" if sudo else "root"
    await place.does(f"echo '{line}' | {sudo}tee /etc/apt/sources.list", user)
    said = await place.does(f"{sudo}apt-get update && {sudo}apt-get install -y {PACKAGE}", user)
    assert f"Setting up {PACKAGE}" in said
    assert await place.does(PACKAGE) == f"{SAID}\n"


@pytest.mark.proves("P16")
async def test_pip_installs_a_package(place: Workplace):
    await place.does(f"pip install --no-cache-dir {PACKAGE}")
    assert await place.does("python3 -c 'import paddock_sample'") == f"{SAID}\n"


@pytest.mark.proves("P16")
async def test_npm_installs_a_package(place: Workplace):
    await place.does(f"mkdir -p ~/node && cd ~/node && npm install --no-audit --no-fund {PACKAGE}")
    assert await place.does(f"cd ~/node && node -e 'require(\"{PACKAGE}\")'") == f"{SAID}\n"


@pytest.mark.proves("P16")
async def test_git_clones_and_pushes_by_https(place: Workplace):
    who = "-c user.name=agent -c user.email=agent@example.org"
    await place.does(f"git clone https://{place.forge}/repository.git ~/work")
    await place.does(f"cd ~/work && git {who} commit --allow-empty -m second && git push")
    assert place.there.log() == "second\nfirst\n"


@pytest.mark.proves("P16")
async def test_curl_node_and_requests_fetch(place: Workplace):
    url = f"https://{place.forge}/debian-sample/Packages"
    fetched = {
        "curl": await place.does(f"curl -fsS {url}"),
        "node": await place.does(
            f"node -e 'fetch(\"{url}\").then(r => r.text()).then(t => process.stdout.write(t))'"
        ),
        "requests": await place.does(
            "python3 -c 'from pip._vendor import requests; "
            f'print(requests.get("{url}", timeout=10).text, end="")\''
        ),
    }
    for program, text in fetched.items():
        assert text.startswith(f"Package: {PACKAGE}\n"), program


async def test_what_they_reached_is_told_with_the_rule(place: Workplace):
    """And a host that the preset does not name is a name that does not exist, at once."""
    await place.does(f"curl -fsS https://{place.index}/simple/{PACKAGE}/ >/dev/null")
    code, said = await place.inside.run(
        *("pip", "install", "--retries", "0", "--index-url", "https://registry.example/simple"),
        *("--no-cache-dir", "other-sample"),
        timeout=30,
    )
    assert code != 0
    assert "No matching distribution found" in said
    flows = await place.inside.world.flows(place.inside.ref)
    seen = {(flow.host, flow.allowed): flow for flow in flows}
    assert seen[place.index, True].rule in PRESET
    assert seen["registry.example", False].why == "no rule allows the name"
