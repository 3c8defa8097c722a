"""A registry of container images on loopback, which can be told to behave badly."""

import gzip
import hashlib
import http.server
import io
import json
import os
import ssl
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.ports import free_port
from tests.upstreams import certificate

NAME = "registry.example"
"""By which tests reach it, with the setting egress.hosts."""
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Image:
    """Its manifest, and everything that the manifest names."""

    manifest: bytes
    blobs: dict[str, bytes]

    @classmethod
    def of(cls, members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> "Image":
        """One layer with these members."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as layer:
            for member, data in members:
                member.size = len(data)
                layer.addfile(member, io.BytesIO(data))
        plain = buffer.getvalue()
        config = {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
        }
        packed, about = gzip.compress(plain, 1), json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": digest(about), "size": len(about)},
            "layers": [{"mediaType": _LAYER, "digest": digest(packed), "size": len(packed)}],
        }
        blobs = {digest(each): each for each in (packed, about)}
        return cls(json.dumps(manifest).encode(), blobs)


def member(name: str, data: bytes = b"", **facts: Any) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    for fact, value in facts.items():
        setattr(made, fact, value)
    return made, data


def small() -> Image:
    return Image.of(
        [
            member("etc", type=tarfile.DIRTYPE, mode=0o755),
            member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644),
            member("bin/su", b"of root\n", mode=0o4755),
            member("srv/file", b"of somebody\n", mode=0o640, uid=33, gid=44),
            member("dev/console", type=tarfile.CHRTYPE, devmajor=5, devminor=1, mode=0o600),
        ]
    )


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class Registry:
    """Any name is the image. Every request is kept."""

    port: int
    certificate: Path
    image: Image
    realm: str = ""
    """Where a client is sent for a token, if anywhere."""
    blobs_at: str = ""
    """Where a client is sent for blobs, if anywhere."""
    hold: threading.Event = field(default_factory=threading.Event)
    """Blobs are sent once it is set."""
    asked: threading.Event = field(default_factory=threading.Event)
    """Set when a blob was asked for."""
    seen: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    @property
    def by_name(self) -> str:
        return f"{NAME}:{self.port}/team/image:1"

    @property
    def by_address(self) -> str:
        return f"127.0.0.1:{self.port}/team/image:1"


def _handler(registry: Registry) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.seen.append((self.path, dict(self.headers)))
            if registry.realm and "authorization" not in self.headers:
                challenge = f'Bearer realm="{registry.realm}",service="tests"'
                self._answer(401, b"{}", {"WWW-Authenticate": challenge})
            elif "/manifests/" in self.path:
                self._answer(200, registry.image.manifest, {"Content-Type": _MANIFEST})
            elif "/blobs/" in self.path:
                self._blob(self.path.rpartition("/")[2])
            else:
                self._answer(200, b"{}")

        do_HEAD = do_GET  # noqa: N815 - as the standard library wants it

        def _blob(self, name: str) -> None:
            registry.asked.set()
            registry.hold.wait(30)
            if registry.blobs_at:
                self._answer(307, b"", {"Location": f"{registry.blobs_at}/{name}"})
            else:
                self._answer(200, registry.image.blobs[name])

        def _answer(self, status: int, body: bytes, fields: Mapping[str, str] = {}) -> None:
            self.send_response(status)
            for name, value in {**fields, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def registry(place: Path, image: Image | None = None) -> Iterator[Registry]:
    """By TLS, under its name and by its address; `place` is for its certificate."""
    both = place / "registry.pem"
    both.write_bytes(certificate((NAME, "127.0.0.1")))
    authority = place / "authority.pem"
    authority.write_text(both.read_text().partition("-----END PRIVATE KEY-----\n")[2])
    made = Registry(free_port(), authority, image or small())
    made.hold.set()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", made.port), _handler(made))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield made
    finally:
        made.hold.set()
        server.shutdown()
        server.server_close()


@contextmanager
def trap() -> Iterator[tuple[int, list[str]]]:
    """A service of the host that nobody may be led to: its port, and the requests that came."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"token": "of the host"}')

        def log_message(self, *_: object) -> None:
            pass

    port = free_port()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield port, asked
    finally:
        server.shutdown()
        server.server_close()


def archive_that_writes_to(victim: Path, archive: Path) -> None:
    """An oci-archive: a link to a directory of the host, then files below the link."""
    image = small()
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                "mediaType": _MANIFEST,
                "digest": digest(image.manifest),
                "size": len(image.manifest),
            }
        ],
    }
    with tarfile.open(archive, "w") as file:
        for each, data in (
            member("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'),
            member("index.json", json.dumps(index).encode()),
            member("out", type=tarfile.SYMTYPE, linkname=str(victim)),
            member("out/written", b"by a tenant"),
        ):
            each.size = len(data)
            file.addfile(each, io.BytesIO(data))
