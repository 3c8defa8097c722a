"""Egress through the gateway against an open network, from two sandboxes in the same run."""

import asyncio
import contextlib
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.harness.disk import TEMPLATES

from bench import rows
from bench.measurements import Missing, Stage, measures
from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.storage import unmount_pool
from paddock.domain.egress import OPEN, EgressPolicy, NetworkMode, SourcedRule
from paddock.guest_client import Guest
from paddock.ports.egress import Credential
from paddock.ports.provider import Observation, SandboxSpec
from paddock.testing.conformance.outside import spare_addresses

_NAME = "upstream.example"
_ROUNDS = 5
_MIB = 256
_GETS = 200
_MANY = 200
Setup = tuple[LocalProvider, str]
_LISTED = EgressPolicy(NetworkMode.ALLOWLIST, (SourcedRule(_NAME),))

_NGINX = """
worker_processes 1;
daemon off;
pid {home}/pid;
error_log {home}/log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
    server {{
        listen 80;
        listen 443 ssl;
        ssl_certificate {home}/certificate;
        ssl_certificate_key {home}/key;
        root {home};
        location = /small {{ return 200 "small\\n"; }}
    }}
}}
"""
_LOAD = """
import socket, ssl, sys, time
host, count, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
address = socket.gethostbyname(host)
request = b"GET /%b HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n"
context = ssl.create_default_context()
if way == "unverified":
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def get(path):
    connection = socket.create_connection((address, 80 if way == "plain" else 443))
    if way != "plain":
        connection = context.wrap_socket(connection, server_hostname="{name}")
    connection.sendall(request % path)
    buffer, size = bytearray(1 << 20), 0
    while got := connection.recv_into(buffer):
        size += got
    return size
get(b"small")
times = []
for _ in range(count):
    began = time.perf_counter()
    get(b"small")
    times.append(time.perf_counter() - began)
times.sort()
began = time.perf_counter()
size = get(b"large")
print(times[len(times) // 2] * 1000, size / (time.perf_counter() - began) / 1e6)
""".replace("{name}", _NAME)
_BOUND = Credential(
    secret="KEY",
    placeholder="pdk-KEY-0123456789abcdef0123456789abcdef",
    hosts=[_NAME],
    way="header",
    value="the-real-value-0123456789",
    header="Authorization",
    format="Bearer {}",
)


@asynccontextmanager
async def upstream() -> AsyncIterator[Setup]:
    """A provider, and the address of a web server that its gateway knows by name."""
    if shutil.which("nginx", path="/usr/sbin:/usr/bin") is None:
        raise Missing("egress needs nginx")
    with _home() as home, _upstream(home) as address:
        config = LocalConfig(data_dir=home / "data", template_cache=TEMPLATES, pool_size_mib=16384)
        certificate = str(home / "certificate")
        egress = EgressConfig(hosts={_NAME: address}, certificates=certificate)
        provider = await LocalProvider.open(config, egress=egress)
        try:
            await provider.prepare("base")
            yield provider, address
        finally:
            await provider.aclose()
            unmount_pool(config.data_dir)


@measures(
    "egress, one connection, 256 MiB (open)",
    "egress, small GET, new connection, added p50",
)
async def compared(setup: Setup) -> list[rows.Row]:
    provider, address = setup
    async with _sandbox(provider, _LISTED) as listed, _sandbox(provider, OPEN) as opened:
        seen = [
            (await _load(provider, listed, _NAME), await _load(provider, opened, address))
            for _ in range(_ROUNDS)
        ]
    ours = [statistics.median(each[0][n] for each in seen) for n in (0, 1)]
    direct = [statistics.median(each[1][n] for each in seen) for n in (0, 1)]
    added = ours[0] - direct[0]
    return [
        rows.at_least(ours[1], 200, "MB/s", direct[1]),
        rows.at_most(added, 3, "ms"),
    ]


@measures(
    "egress to a bound host, one connection, 256 MiB (open)",
    "egress to a bound host, small GET, added p50",
)
async def bound_host(setup: Setup) -> list[rows.Row]:
    """To a host that a secret is bound to: TLS is looked into, and answers are looked at."""
    provider, address = setup
    async with _sandbox(provider, _LISTED) as bound, _sandbox(provider, OPEN) as opened:
        await provider.gateway.give(bound.ref.id, "bench", [_BOUND])
        seen = [
            (
                await _load(provider, bound, _NAME, "verified"),
                await _load(provider, opened, address, "unverified"),
            )
            for _ in range(_ROUNDS)
        ]
    ours = [statistics.median(each[0][n] for each in seen) for n in (0, 1)]
    direct = [statistics.median(each[1][n] for each in seen) for n in (0, 1)]
    added = ours[0] - direct[0]
    return [
        rows.at_least(ours[1], 200, "MB/s", direct[1]),
        rows.at_most(added, 3, "ms"),
    ]


@measures(
    f"egress, small GET, {_MANY} sandboxes connected, p50",
    f"egress gateway, memory with {_MANY} sandboxes",
    "egress gateway, descriptors for each sandbox",
)
async def crowded(setup: Setup) -> list[rows.Row]:
    """Each has one connection open, and one of them is used."""
    provider, _ = setup
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for _ in range(_MANY):
            made.append(await stack.enter_async_context(_sandbox(provider, _LISTED)))
            async with Guest(await provider.guest(made[-1].ref)) as guest:
                hold = f"exec 3<>/dev/tcp/{_NAME}/80; exec sleep 600"
                await guest.runs.start("hold", ["bash", "-c", hold])
        await _all_connected(provider)
        p50, _ = await _load(provider, made[0], _NAME)
        gateway = _gateway(provider)
        memory = int((gateway / "statm").read_text().split()[1]) * 4096 / 2**20
        descriptors = len(list((gateway / "fd").iterdir())) / _MANY
    return [
        rows.at_most(p50, 5, "ms"),
        rows.at_most(memory, 64, "MiB"),
        rows.at_most(descriptors, 7, "fds"),
    ]


async def _all_connected(provider: LocalProvider) -> None:
    """A row about many connections that are not there would say nothing."""
    connected, stored = set[str](), dict[str, int]()
    async with asyncio.timeout(60):
        while len(connected) < _MANY:
            told = await provider.gateway.drain(stored)
            if told is not None:
                connected |= {flow.ref for flow in told.flows if flow.allowed}
                stored[told.gateway] = told.number
            await asyncio.sleep(0 if told is not None and told.more else 0.2)


def _gateway(provider: LocalProvider) -> Path:
    """What the kernel tells of its process."""
    mark = f"--of={provider.gateway.place}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdigit() and mark in (entry / "cmdline").read_bytes().split(b"\0"):
                return entry
    raise RuntimeError("there is no gateway")


@asynccontextmanager
async def _sandbox(provider: LocalProvider, policy: EgressPolicy) -> AsyncIterator[Observation]:
    key = f"bench-{random.getrandbits(64):x}"
    made = await provider.create(key, SandboxSpec(template="base", egress=policy))
    try:
        yield made
    finally:
        await provider.destroy(made.ref)


async def _load(
    provider: LocalProvider, made: Observation, host: str, way: str = "plain"
) -> tuple[float, float]:
    """How many milliseconds a small answer took in the middle, and how many MB/s a large one."""
    async with Guest(await provider.guest(made.ref)) as guest:
        done = await guest.exec(["python3", "-c", _LOAD, host, str(_GETS), way], timeout=120)
    if done.exit_code != 0:
        raise RuntimeError(done.stderr.decode())
    p50, rate = done.stdout.split()
    return float(p50), float(rate)


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="paddock-bench-egress-", dir="/var/tmp"))
    home.chmod(0o755)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _upstream(home: Path) -> Iterator[str]:
    """nginx in a network of its own, at an address kept for documentation."""
    with (home / "large").open("wb") as large:
        large.truncate(_MIB << 20)
    _certify(home)
    (home / "nginx.conf").write_text(_NGINX.format(home=home))
    nginx = ["unshare", "--net", "nginx", "-c", str(home / "nginx.conf")]
    child = subprocess.Popen(nginx, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    try:
        here, there = spare_addresses(Path("/proc/net/route").read_text())
        inside = f"nsenter --target {child.pid} --net "
        for _ in range(100):
            if Path(f"/proc/{child.pid}/ns/net").stat() != Path("/proc/self/ns/net").stat():
                break
        for command in (
            f"ip link add pdkbench type veth peer name eth0 netns {child.pid}",
            f"ip address add {here}/30 dev pdkbench",
            "ip link set pdkbench up",
            f"{inside}ip address add {there}/30 dev eth0",
            f"{inside}ip link set eth0 up",
            f"{inside}ip route add default via {here}",
        ):
            subprocess.run(command.split(), check=True, timeout=10)
        yield there
    finally:
        child.terminate()
        child.wait()


def _certify(home: Path) -> None:
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split()
    names = ["-subj", f"/CN={_NAME}", "-addext", f"subjectAltName=DNS:{_NAME}"]
    files = ["-keyout", str(home / "key"), "-out", str(home / "certificate")]
    made = ["openssl", "req", "-x509", "-days", "2", *curve, *names, *files]
    subprocess.run(made, check=True, timeout=30, stderr=subprocess.DEVNULL)


STAGES = (Stage("the egress gateway", upstream, (compared, bound_host, crowded)),)
