"""An npm registry of one's own: real npm installs from it, and it knows how often."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

ANSWERS = "#!/bin/sh\necho 1.0.0\n"


@dataclass
class Registry:
    """What is published, and what was asked for."""

    url: str = ""
    packages: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    downloads: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """While it is not set, downloads wait."""
    asked: threading.Event = field(default_factory=threading.Event)

    def publish(self, name: str, version: str = "1.0.0", mode: int = 0o755, **files: str) -> None:
        about = {"package.json": json.dumps({"name": name, "version": version})}
        contents: Mapping[str, str] = {**about, **files}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path, text in contents.items():
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size, entry.mode = len(text), mode
                archive.addfile(entry, io.BytesIO(text.encode()))
        self.packages[name] = (version, buffer.getvalue())

    def describe(self, name: str) -> dict[str, Any]:
        version, data = self.packages[name]
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": f"{self.url}/-/{name}.tgz", "integrity": f"sha512-{digest}"}
        about = {"name": name, "version": version, "dist": dist}
        return {"name": name, "dist-tags": {"latest": version}, "versions": {version: about}}


@contextmanager
def serving() -> Iterator[Registry]:
    registry = Registry()
    registry.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path).lstrip("/")
            name = path.removeprefix("-/").removesuffix(".tgz")
            if name not in registry.packages:
                self.answer(404, b"{}")
            elif path.endswith(".tgz"):
                registry.downloads.append(name)
                registry.asked.set()
                registry.gate.wait(200)
                self.answer(200, registry.packages[name][1])
            else:
                self.answer(200, json.dumps(registry.describe(name)).encode())

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        registry.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
