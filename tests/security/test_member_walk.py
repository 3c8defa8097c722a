"""Issue: a walk over all routes as a member. The host touches nothing that is not the tenant's."""

import asyncio
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi.openapi.utils import get_openapi

from paddock.interfaces.e2b.app import ROUTERS
from tests.engines import REPOSITORY
from tests.harness.disk import CACHE, TEMPLATES
from tests.harness.ports import free_port
from tests.security.route_walk import Walk
from tests.security.strace_log import OPTIONS, Allowed, violations
from tests.wiring_server import server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_PROGRAMS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib", "/usr/libexec")
_SHARED = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/dev")
_ETC = (
    "ld.so.cache nsswitch.conf passwd group hosts host.conf resolv.conf gai.conf localtime ssl "
    "subuid subgid iproute2 containers locale.alias mke2fs.conf login.defs protocols "
    "services os-release ca-certificates.conf"
)


class Canaries:
    """Files and a port of the host that nobody has a reason to touch."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(mode=0o700)
        for name in ("file", "image.tar", "index.json", "oci-layout", "manifest.json"):
            (place / name).write_text('{"imageLayoutVersion": "1.0.0", "manifests": []}')
        self.port = free_port()
        self.dialled = 0

    def hostile(self) -> list[str]:
        place, at = self.place, f"127.0.0.1:{self.port}"
        return [
            f"{place}/file",
            f"../../../../../../../../..{place}/file",
            f"file://{place}/file",
            f"oci:{place}",
            f"oci-archive:{place}/image.tar",
            f"docker-archive:{place}/image.tar",
            f"dir:{place}",
            f"{at}/library/x:latest",
            f"docker://{at}/x:latest",
            f"http://{at}/x.git",
            f"localhost:{self.port}/x",
            "http://169.254.169.254/latest/meta-data",
        ]

    @asynccontextmanager
    async def listening(self):
        async def hang_up(_reader, writer):
            self.dialled += 1
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1", self.port):
            yield self


@pytest.fixture
def tracer(need, tmp_path):
    """What starts a program under strace, and where the log is."""
    if shutil.which("strace") is None:
        need("strace", "not installed")
    tried = subprocess.run(
        ["strace", *OPTIONS, "-o", "/dev/null", "true"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        need("strace", f"it may not trace: {tried.stderr.decode()[-200:]}")
    log = tmp_path / "strace"
    return ("strace", "-D", *OPTIONS, "-o", str(log)), log


@pytest.fixture
async def canaries(tmp_path):
    async with Canaries(tmp_path / "canary").listening() as made:
        yield made


def lines_of(log: Path) -> list[str]:
    return log.read_text(errors="surrogateescape").splitlines()


def allowed(made, canaries: Canaries) -> Allowed:
    """Of the server: its own data, its code and its libraries, and what every program reads."""
    base = Path(sys.base_prefix)
    return Allowed(
        read=(
            *_SHARED,
            *(f"/etc/{name}" for name in _ETC.split()),
            str(REPOSITORY),
            str(CACHE / "bin"),
            str(base),
        ),
        write=(
            str(made.data),
            str(made.data.parent / "log"),
            "/run/paddock",
            str(TEMPLATES),
            "/dev",
            "/proc",
            "/sys/fs/cgroup",
            "/tmp/paddock-*",
            "/tmp/crun.*",
            "/var/tmp/etilqs_*",  # SQLite's
            "/memfd:*",
        ),
        execute=(*_PROGRAMS, str(CACHE / "bin"), str(REPOSITORY / ".venv"), str(base)),
        connect=(f"unix:{made.data}", "unix:/run/paddock", "unix:/var/run/nscd/socket"),
        canaries=(
            str(canaries.place),
            f"127.0.0.1:{canaries.port}",
            f"::1:{canaries.port}",
            "169.254.169.254:80",
            "169.254.169.254:443",
            "unix:/var/run/docker.sock",
            "unix:/run/docker.sock",
        ),
    )


def of_e2b():
    routes = [route for module in ROUTERS for route in module.router.routes]
    return get_openapi(title="E2B", version="1", routes=routes)


async def a_member(made):
    """Of a team that does not run the installation."""
    team = await made.admin.post("/v1/teams", {"name": "tenant"})
    assert team.status == 201, team.body
    admin = type(made.admin)(made.url, team["token"]["token"], made.admin.session)
    token = await admin.post("/v1/tokens", {"name": "walker", "role": "member"})
    return type(made.admin)(made.url, token["token"], made.admin.session)


async def build_from(member, name, plan):
    """What E2B's SDK does to build a template, to the end of it."""
    begun = await member.post("/v3/templates", {"name": name})
    assert begun.status == 202, begun.body
    path = f"templates/{begun['templateID']}/builds/{begun['buildID']}"
    started = await member.post(f"/v2/{path}", plan)
    async with asyncio.timeout(60):
        while started.status == 202:
            status = (await member.get(f"/{path}/status"))["status"]
            if status in ("ready", "error"):
                return
            await asyncio.sleep(0.05)


async def build_from_each(member, hostile):
    """The routes alone do not reach it: a build has to be begun first."""
    for number, value in enumerate(hostile):
        await build_from(member, f"image-{number}", {"fromImage": value})
        await build_from(member, f"template-{number}", {"fromTemplate": value})
    copy = {"type": "COPY", "args": [hostile[0], "/x"], "filesHash": hostile[1]}
    await build_from(member, "files", {"fromTemplate": "base", "steps": [copy]})


async def test_a_members_walk_makes_the_host_touch_nothing_else(
    as_root, tracer, canaries, monkeypatch
):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # the cache is not of this test
    under, log = tracer
    settings = {
        "server__ssh_port": "0",
        "server__requests_per_second": "100000",
        "server__requests_burst": "100000",
        "provider": "local",
    }
    async with server(under=under, **settings) as made:
        member = await a_member(made)
        since = len(lines_of(log))
        boxes = [await member.post("/v1/sandboxes", {"name": name}) for name in ("walk", "spare")]
        assert [each.status for each in boxes] == [201, 201], boxes
        own = {"sandbox": boxes[0]["id"], "spare": boxes[1]["id"], "port": "8000"}
        walk = Walk(member.call, own, canaries.hostile())
        await walk.through((await member.get("/v1/openapi.json")).body)
        ours = len(walk.statuses)
        walk.own = {name: value.replace("sbx_", "sbx") for name, value in own.items()}
        await walk.through(of_e2b())
        await build_from_each(member, canaries.hostile())
    assert ours > 150 and len(walk.statuses) > ours + 30
    refused = [each for each in walk.statuses.values() if each and set(each) <= {401, 403}]
    assert len(refused) < len(walk.statuses) / 3, "or it would show little"
    lines = lines_of(log)
    assert any("execve(" in line and "crun" in line for line in lines[since:]), "it was traced"
    found = violations(lines, allowed(made, canaries), since)
    assert not found, "\n".join(found[:40])
    assert canaries.dialled == 0
