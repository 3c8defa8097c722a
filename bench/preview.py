"""The preview listener against nginx as a reverse proxy, on the same upstream in the same run."""

import asyncio
import contextlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import rows
from bench.measurements import Missing, Stage, measures
from paddock.interfaces.preview import (
    Answer,
    Front,
    Pages,
    RequestHead,
    Trouble,
    Upstream,
    parse_preview_host,
)

_ROUNDS = 5
_SECONDS = 2
_CONNECTIONS = 32
_HOST = "3000-web.preview.localhost"
_PROGRAMS = ("nginx", "wrk")

_NGINX = """
worker_processes 1;
daemon off;
pid {home}/{name}.pid;
error_log {home}/{name}.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {home}/{name}-body;
    proxy_temp_path {home}/{name}-proxy;
    fastcgi_temp_path {home}/{name}-fastcgi;
    uwsgi_temp_path {home}/{name}-uwsgi;
    scgi_temp_path {home}/{name}-scgi;
    {http}
}}
"""
_UPSTREAM = """
    server {{
        listen 127.0.0.1:{port};
        location / {{ default_type text/plain; return 200 "hello from a sandbox\\n"; }}
    }}
"""
_PROXY = """
    upstream app {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_set_header X-Forwarded-Port $server_port;
        }}
    }}
"""


@dataclass(frozen=True)
class Load:
    """What one run of the load generator saw."""

    per_second: float
    p50_ms: float


@contextlib.asynccontextmanager
async def listeners() -> AsyncIterator[dict[str, int]]:
    """The ports of a web server, and of nginx and ours in front of it."""
    if missing := [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]:
        raise Missing(f"previews need {', '.join(missing)}")
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        home.chmod(0o755)
        upstream, proxy = _free_port(), _free_port()
        stack.enter_context(_nginx(home, "upstream", _UPSTREAM.format(port=upstream)))
        stack.enter_context(_nginx(home, "proxy", _PROXY.format(port=proxy, upstream=upstream)))
        ours = stack.enter_context(_front(upstream))
        await asyncio.sleep(0.5)
        ports = {"direct": upstream, "nginx": proxy, "ours": ours}
        for port in ports.values():
            await _load(port, _CONNECTIONS, seconds=1)
        yield ports


@measures(f"preview, small GET, {_CONNECTIONS} connections (nginx)")
async def busy(ports: dict[str, int]) -> list[rows.Row]:
    """The round in the middle, by its ratio: what is compared was measured seconds apart."""
    seen = await _rounds(ports, _CONNECTIONS)
    middle = sorted(seen, key=lambda each: each["ours"].per_second / each["nginx"].per_second)
    rate = {name: load.per_second for name, load in middle[len(middle) // 2].items()}
    ratio = rate["ours"] / rate["nginx"]
    target, met = "≥ 1/3 of baseline", ratio >= 1 / 3
    return [rows.Row("", rate["ours"], rate["nginx"], "/s", ratio, target, met)]


@measures("preview, small GET, added p50, 1 connection (nginx)")
async def quiet(ports: dict[str, int]) -> list[rows.Row]:
    seen = await _rounds(ports, 1)
    p50 = {name: statistics.median(each[name].p50_ms for each in seen) for name in ports}
    added, theirs = p50["ours"] - p50["direct"], p50["nginx"] - p50["direct"]
    more = added / theirs if theirs > 0 else None
    return [rows.Row("", added, theirs, "ms", more, "≤ 1 ms", added <= 1)]


async def _rounds(ports: dict[str, int], connections: int) -> list[dict[str, Load]]:
    """In turns, so that a noisy moment hits all of them."""
    return [
        {name: await _load(port, connections, seconds=_SECONDS) for name, port in ports.items()}
        for _ in range(_ROUNDS)
    ]


async def _load(port: int, connections: int, *, seconds: int) -> Load:
    process = await asyncio.create_subprocess_exec(
        *("wrk", "--latency", "-t1", f"-c{connections}", f"-d{seconds}s", "-H", f"Host: {_HOST}"),
        f"http://127.0.0.1:{port}/",
        stdout=subprocess.PIPE,
    )
    said = (await process.communicate())[0].decode()
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    half = re.search(r"50%\s+([\d.]+)(us|ms|s)", said)
    assert process.returncode == 0 and rate and half, said
    assert "Non-2xx" not in said and "Socket errors" not in said, said
    return Load(float(rate[1]), float(half[1]) * {"us": 1e-3, "ms": 1, "s": 1e3}[half[2]])


@contextlib.contextmanager
def _nginx(home: Path, name: str, http: str) -> Iterator[None]:
    config = home / f"{name}.conf"
    config.write_text(_NGINX.format(home=home, name=name, http=http))
    program = shutil.which("nginx", path=_path()) or "nginx"
    with _running([program, "-c", str(config), "-e", str(home / f"{name}.log")]):
        yield


@contextlib.contextmanager
def _front(upstream: int) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.preview", str(upstream)]
    with _running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


@contextlib.contextmanager
def _running(command: list[str], stdout: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=stdout)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=15)
        if process.stdout:
            process.stdout.close()


async def serve_front(upstream: int) -> None:
    """What the child process does: a front with one sandbox behind it."""
    loop = asyncio.get_running_loop()
    pages = Pages()

    async def dial() -> socket.socket:
        opened = socket.socket()
        opened.setblocking(False)
        await loop.sock_connect(opened, ("127.0.0.1", upstream))
        return opened

    there = Upstream(key=("web", 3000), dial=dial)

    async def resolve(head: RequestHead) -> Answer:
        host = parse_preview_host(head.host)
        if host is None or host.sandbox != "web":
            return pages.error(head, Trouble(404, "not_found", "There is no such sandbox."))
        return there

    async with Front(resolve) as front:
        _, port = await front.listen("127.0.0.1", 0)
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _path() -> str:
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


STAGES = (Stage("web servers", listeners, (busy, quiet)),)


def main() -> None:
    """The child process: `python -m bench.preview UPSTREAM_PORT`."""
    import uvloop

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve_front(int(sys.argv[1])))


if __name__ == "__main__":
    main()
