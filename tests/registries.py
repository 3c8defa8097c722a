"""Registries of packages and a git server, for programs that use them as they always do.

They answer under whatever names they are given, by TLS and without, in a network of their own.
"""

import asyncio
import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.upstreams import outside

PACKAGE = "paddock-sample"
SAID = "a sample speaks"

_SERVER = r"""
import http.server, os, ssl, subprocess, sys, threading
from urllib.parse import urlsplit

class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extensions_map = {"": "application/octet-stream", ".html": "text/html",
                      ".json": "application/json"}

    def do_GET(self):
        if self.path.startswith("/repository.git"):
            return self.git()
        if self.path.split("?")[0] == "/paddock-sample":
            self.path = "/paddock-sample.json"
        return super().do_GET()

    def do_POST(self):
        self.git()

    def git(self):
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": os.getcwd(), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": url.path, "QUERY_STRING": url.query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("git-protocol", ""),
            "REMOTE_ADDR": "192.0.2.1", "REMOTE_USER": "agent",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.partition(": ")[::2] for line in head.decode().split("\r\n")]
        status = next((value.split()[0] for name, value in fields if name == "Status"), "200")
        self.send_response(int(status))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
plain = http.server.ThreadingHTTPServer(("0.0.0.0", 80), Handler)
secure = http.server.ThreadingHTTPServer(("0.0.0.0", 443), Handler)
secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=plain.serve_forever, daemon=True).start()
print("ready", flush=True)
secure.serve_forever()
"""


@dataclass(frozen=True)
class Registries:
    """What lies behind the names."""

    address: str
    root: Path
    authority: str
    """Whom to trust, in PEM."""

    def log(self) -> str:
        """Of the git repository."""
        command = ["git", "-C", str(self.root / "repository.git"), "log", "--format=%s", "main"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@asynccontextmanager
async def registries(root: Path, names: Sequence[str]) -> AsyncIterator[Registries]:
    """Under these names; `root` is an empty directory that they keep their things in."""
    await asyncio.to_thread(_fill, root, names)
    argv = (sys.executable, "-c", _SERVER)
    async with outside(names, *argv, cwd=root) as there:
        authority = there.certificate.read_text().partition("-----END PRIVATE KEY-----\n")[2]
        yield Registries(there.address, root, authority)


def _fill(root: Path, names: Sequence[str]) -> None:
    _fill_python(root / "simple" / PACKAGE)
    _fill_node(root, names)
    _fill_debian(root / "debian-sample")
    _fill_git(root)


def _fill_python(place: Path) -> None:
    place.mkdir(parents=True)
    module, name = PACKAGE.replace("-", "_"), f"{PACKAGE.replace('-', '_')}-1.0"
    info = f"{name}.dist-info"
    with zipfile.ZipFile(place / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}.py", f"print({SAID!r})\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", f"{module}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    (place / "index.html").write_text(
        f'<!DOCTYPE html><html><body><a href="{name}-py3-none-any.whl">{name}</a></body></html>'
    )


def _fill_node(root: Path, names: Sequence[str]) -> None:
    package = {"name": PACKAGE, "version": "1.0.0", "main": "index.js"}
    files = {
        "package/package.json": json.dumps(package),
        "package/index.js": f"console.log({SAID!r})",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    content = buffer.getvalue()
    (root / "sample.tgz").write_bytes(content)
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    dist = {"tarball": f"https://{names[0]}/sample.tgz", "integrity": f"sha512-{digest}"}
    versions = {"1.0.0": {**package, "dist": dist}}
    about = {"name": PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": versions}
    (root / f"{PACKAGE}.json").write_text(json.dumps(about))


def _fill_debian(place: Path) -> None:
    files = place / "files"
    (files / "DEBIAN").mkdir(parents=True)
    (files / "usr/bin").mkdir(parents=True)
    program = files / "usr/bin" / PACKAGE
    program.write_text(f"#!/bin/sh\necho {SAID}\n")
    program.chmod(0o755)
    control = (
        f"Package: {PACKAGE}\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <n@example.org>\n"
        "Description: a sample\n"
    )
    (files / "DEBIAN/control").write_text(control)
    deb = place / "sample.deb"
    subprocess.run(["dpkg-deb", "--build", str(files), str(deb)], check=True, capture_output=True)
    shutil.rmtree(files)
    content = deb.read_bytes()
    packages = (
        f"{control}Filename: ./sample.deb\nSize: {len(content)}\n"
        f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
    )
    (place / "Packages").write_text(packages)
    (place / "Packages.gz").write_bytes(gzip.compress(packages.encode()))


def _fill_git(root: Path) -> None:
    repository = root / "repository.git"
    env = {
        **os.environ,
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a person"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "person@example.org"),
    }
    for command in (
        f"git init -q --bare -b main {repository}",
        f"git -C {repository} config http.receivepack true",
        f"git init -q -b main {root}/work",
        f"git -C {root}/work commit -q --allow-empty -m first",
        f"git -C {root}/work push -q {repository} main",
    ):
        subprocess.run(command.split(), check=True, env=env, timeout=20)
    shutil.rmtree(root / "work")
