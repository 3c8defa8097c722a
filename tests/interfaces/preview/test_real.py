"""Real clients and real servers: curl, aiohttp, nginx on either side."""

import asyncio
import contextlib
import datetime
import io
import os
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import aiohttp
import fastapi
import pytest
import uvicorn
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi.responses import StreamingResponse

from paddock.interfaces.preview import Upstream
from tests.harness.ports import free_port
from tests.interfaces.preview.running import HOST, connected, eventually, fetch, get, to_port

NGINX = """
{user}
daemon off;
pid {home}/pid;
error_log {home}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    {http}
}}
"""


@contextlib.asynccontextmanager
async def running(app: web.Application):
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site._server.sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


def application() -> web.Application:
    app = web.Application(client_max_size=2**30)

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), headers={"X-Method": request.method})

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        for number in range(100):
            await answer.write(b"%d\n" % number * 1000)
        return answer

    async def socket_(request: web.Request) -> web.WebSocketResponse:
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        async for message in answer:
            await answer.send_str(message.data.upper())
        return answer

    app.router.add_get("/stream", stream)
    app.router.add_get("/socket", socket_)
    app.router.add_route("*", "/{path:.*}", echo)
    return app


@pytest.fixture
def nginx(tmp_path, need):
    """`await nginx(http)` runs one with this configuration until the test ends."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        need("nginx", "not installed")
    processes = []

    async def start(http: str, port: int) -> None:
        user = "user root;" if os.geteuid() == 0 else ""
        (tmp_path / "nginx.conf").write_text(NGINX.format(user=user, home=tmp_path, http=http))
        command = [program, "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
        processes.append(subprocess.Popen(command))
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(0.02)

    yield start
    for process in processes:
        process.terminate()
        process.wait(10)


async def curl(need, port: int, path: str, *options: str) -> bytes:
    if shutil.which("curl") is None:
        need("curl", "not installed")
    process = await asyncio.create_subprocess_exec(
        *("curl", "-sS", "--noproxy", "*", "--max-time", "20", "--resolve"),
        *(f"{HOST}:{port}:127.0.0.1", *options, f"http://{HOST}:{port}{path}"),
        stdout=subprocess.PIPE,
    )
    said = (await process.communicate())[0]
    assert process.returncode == 0, said
    return said


async def test_curl_talks_to_aiohttp(serve, need, tmp_path):
    (tmp_path / "big").write_bytes(b"0123456789" * 300_000)
    async with running(application()) as port:
        front = serve(to_port(port))
        data = await curl(need, front.port, "/", "--data-binary", f"@{tmp_path / 'big'}")
        assert data == (tmp_path / "big").read_bytes()
        chunked = await curl(
            need, front.port, "/", "-T", str(tmp_path / "big"), "-H", "Transfer-Encoding: chunked"
        )
        assert chunked == data
        expected = await curl(
            need, front.port, "/", "-H", "Expect: 100-continue", "--data-binary", "hello"
        )
        assert expected == b"hello"
        head = await curl(need, front.port, "/x", "-I")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        old = await curl(need, front.port, "/stream", "--http1.0")
        new = await curl(need, front.port, "/stream")
        assert old == new == b"".join(b"%d\n" % number * 1000 for number in range(100))
        # curl asks for h2c with an upgrade; it stays with HTTP/1.1.
        assert await curl(need, front.port, "/", "--http2", "-d", "x") == b"x"


async def test_aiohttp_s_own_client_and_websockets(serve):
    async with running(application()) as port:
        front = serve(to_port(port))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{front.port}") as session:
            bodies = [b"x" * size for size in (0, 1, 70_000, 3_000_000)]

            async def post(body: bytes) -> None:
                async with session.post("/", data=io.BytesIO(body)) as answer:
                    assert await answer.read() == body

            await asyncio.gather(*(post(body) for body in bodies * 5))
            async with session.ws_connect("/socket") as connection:
                await connection.send_str("hello")
                assert (await connection.receive()).data == "HELLO"


async def test_nginx_as_the_upstream(serve, need, nginx, tmp_path):
    port = free_port()
    (tmp_path / "file.txt").write_bytes(b"0123456789" * 200_000)
    await nginx(f"server {{ listen 127.0.0.1:{port}; root {tmp_path}; }}", port)
    front = serve(to_port(port))
    assert await curl(need, front.port, "/file.txt") == b"0123456789" * 200_000
    part = await curl(need, front.port, "/file.txt", "-r", "10-14")
    assert part == b"01234"
    assert b" 404 " in await curl(need, front.port, "/none", "-I")
    async with connected(front.port) as client:
        await client.send(get("/file.txt"))
        tag = (await client.answer()).get("etag")
        await client.send(get("/file.txt", f"If-None-Match: {tag}"))
        assert (await client.answer()).status == 304
        await client.send(get("/file.txt").replace(b"GET", b"HEAD"))
        assert (await client.answer("HEAD")).get("content-length") == "2000000"


async def test_a_websocket_comes_through_nginx_in_front(serve, nginx):
    async with running(application()) as upstream:
        front = serve(to_port(upstream), trusted_proxies=("127.0.0.1",))
        port = free_port()
        await nginx(
            f"""server {{
                listen 127.0.0.1:{port};
                location / {{
                    proxy_pass http://127.0.0.1:{front.port};
                    proxy_http_version 1.1;
                    proxy_set_header Host $http_host;
                    proxy_set_header Upgrade $http_upgrade;
                    proxy_set_header Connection upgrade;
                }}
            }}""",
            port,
        )
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.ws_connect("/socket") as connection:
                await connection.send_str("hello")
                assert (await connection.receive()).data == "HELLO"


async def test_uvicorn_on_a_unix_socket(serve, tmp_path):
    app = fastapi.FastAPI()

    @app.get("/events")
    async def events() -> StreamingResponse:
        async def stream():
            for number in range(3):
                yield f"id: {number}\ndata: x\n\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(stream(), media_type="text/event-stream")

    @app.websocket("/terminal")
    async def terminal(connection: fastapi.WebSocket) -> None:
        await connection.accept()
        await connection.send_text((await connection.receive_text()).upper())
        await connection.close()

    @app.post("/upload")
    async def upload(request: fastapi.Request) -> dict[str, object]:
        size = sum([len(piece) async for piece in request.stream()])
        return {"size": size, "from": request.client.host, "scheme": request.url.scheme}

    path = tmp_path / "api.sock"

    async def dial():
        opened = socket.socket(socket.AF_UNIX)
        opened.setblocking(False)
        opened.connect(str(path))
        return opened

    config = uvicorn.Config(
        app, uds=str(path), log_level="error", forwarded_allow_ips="*", lifespan="off"
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    front = serve(lambda _: Upstream("api", dial), public_url="https://paddock.test")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{front.port}") as session:
        async with session.get("/events") as answer:
            assert (await answer.text()).count("data: x") == 3
        async with session.post("/upload", data=io.BytesIO(b"x" * 5_000_000)) as answer:
            said = await answer.json()
            assert said == {"size": 5_000_000, "from": "127.0.0.1", "scheme": "https"}
        async with session.ws_connect("/terminal") as connection:
            await connection.send_str("hello")
            assert (await connection.receive()).data == "HELLO"
    server.should_exit = True
    await task


async def test_an_upstream_may_speak_tls(serve, tmp_path):
    server, client = certificate(tmp_path)
    runner = web.AppRunner(application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        front = serve(to_port(port, tls=client, server_name="vendor.test"))
        async with aiohttp.ClientSession(f"http://127.0.0.1:{front.port}") as session:
            body = b"x" * 2_000_000
            for _ in range(2):
                async with session.post("/", data=io.BytesIO(body)) as answer:
                    assert await answer.read() == body
            async with session.ws_connect("/socket") as connection:
                await connection.send_str("hello")
                assert (await connection.receive()).data == "HELLO"
        wrong = serve(to_port(port, tls=client, server_name="other.test"))
        assert (await fetch(wrong.port, get())).status == 502
    finally:
        await runner.cleanup()


def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for vendor.test, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vendor.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("vendor.test")]), False)
        .sign(key, hashes.SHA256())
    )
    kind = serialization.Encoding.PEM
    private = key.private_bytes(
        kind, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(private + made.public_bytes(kind))
    (folder / "public.pem").write_bytes(made.public_bytes(kind))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "both.pem")
    return server, ssl.create_default_context(cafile=folder / "public.pem")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_nginx_as_a_proxy_in_front(serve, need, nginx, version):
    async with running(application()) as upstream:
        front = serve(to_port(upstream), trusted_proxies=("127.0.0.1",))
        port = free_port()
        await nginx(
            f"""server {{
                listen 127.0.0.1:{port};
                location / {{
                    proxy_pass http://127.0.0.1:{front.port};
                    proxy_http_version {version};
                    proxy_set_header Host $http_host;
                    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                    proxy_set_header X-Forwarded-Proto https;
                }}
            }}""",
            port,
        )
        said = await curl(need, port, "/stream")
        assert said == b"".join(b"%d\n" % number * 1000 for number in range(100))
        assert await curl(need, port, "/", "-d", "x" * 100_000) == b"x" * 100_000
