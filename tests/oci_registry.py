"""The registry of the OCI distribution project, built once per machine, on loopback."""

import fcntl
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Need
from tests.harness.disk import CACHE
from tests.harness.ports import free_port
from tests.image_registry import Image, digest
from tests.upstreams import certificate

VERSION = "v3.0.0"
_MODULE = f"github.com/distribution/distribution/v3/cmd/registry@{VERSION}"
_PROGRAM = CACHE / "bin" / f"distribution-{VERSION}"
_BUILD_S, _START_S = 540, 20
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = """
version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {place}/store}}
http:
  addr: 127.0.0.1:{port}
  tls: {{certificate: {place}/server.pem, key: {place}/server.pem}}
"""


def program(need: Need) -> Path:
    """Built with Go where it is missing."""
    if _PROGRAM.exists():
        return _PROGRAM
    if shutil.which("go") is None:
        need(f"distribution {VERSION}", "an OCI registry; Go, which builds it, is not installed")
    _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    with (_PROGRAM.parent / ".distribution.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _PROGRAM.exists() and (why := _build()):
            need(f"distribution {VERSION}", f"an OCI registry; Go cannot build it: {why}")
    return _PROGRAM


def _build() -> str:
    """Why not; empty when it was built."""
    with tempfile.TemporaryDirectory(dir=_PROGRAM.parent) as place:
        env = {**os.environ, "GOBIN": place, "GOFLAGS": "-buildvcs=false"}
        try:
            done = subprocess.run(
                ["go", "install", _MODULE],
                env=env,
                capture_output=True,
                timeout=_BUILD_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it takes more than {_BUILD_S} s"
        if done.returncode:
            return done.stderr.decode(errors="replace").strip().splitlines()[-1]
        (Path(place) / "registry").rename(_PROGRAM)
    return ""


@dataclass(frozen=True)
class OciRegistry:
    """One that runs."""

    port: int
    authority: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def push(self, image: Image, name: str, tag: str) -> str:
        """As clients do: blobs, then the manifest. Gives its digest."""
        for content in image.blobs.values():
            upload = self._call("POST", f"/v2/{name}/blobs/uploads/")["Location"]
            joint = "&" if "?" in upload else "?"
            octets = {"Content-Type": "application/octet-stream"}
            self._call("PUT", f"{upload}{joint}digest={digest(content)}", content, octets)
        return self._put(name, tag, image.manifest, _MANIFEST)

    def push_index(self, name: str, tag: str, entries: Mapping[str, bytes]) -> str:
        """Of manifests that were pushed, by architecture."""
        manifests = [
            {
                "mediaType": _MANIFEST,
                "digest": digest(manifest),
                "size": len(manifest),
                "platform": {"architecture": architecture, "os": "linux"},
            }
            for architecture, manifest in entries.items()
        ]
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
        return self._put(name, tag, json.dumps(index).encode(), _INDEX)

    def _put(self, name: str, tag: str, manifest: bytes, kind: str) -> str:
        self._call("PUT", f"/v2/{name}/manifests/{tag}", manifest, {"Content-Type": kind})
        return f"sha256:{hashlib.sha256(manifest).hexdigest()}"

    def _call(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] = {}
    ) -> Mapping[str, str]:
        url = url if url.startswith("https:") else f"https://{self.host}{url}"
        request = urllib.request.Request(url, body, dict(headers), method=method)
        context = ssl.create_default_context(cafile=str(self.authority))
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return dict(answer.headers)

    def is_up(self) -> bool:
        with suppress(OSError):
            self._call("GET", "/v2/")
            return True
        return False


@contextmanager
def oci_registry(program: Path) -> Iterator[OciRegistry]:
    with tempfile.TemporaryDirectory() as text:
        place, port = Path(text), free_port()
        (place / "server.pem").write_bytes(certificate(("127.0.0.1",)))
        authority = place / "authority.pem"
        pem = (place / "server.pem").read_text()
        authority.write_text(pem.partition("-----END PRIVATE KEY-----\n")[2])
        (place / "config.yml").write_text(_CONFIG.format(place=place, port=port))
        with (place / "log").open("wb") as log:
            command = [str(program), "serve", str(place / "config.yml")]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        registry = OciRegistry(port, authority)
        try:
            until = time.monotonic() + _START_S
            while not registry.is_up():
                said = (place / "log").read_text()
                assert process.poll() is None and time.monotonic() < until, said
                time.sleep(0.05)
            yield registry
        finally:
            process.terminate()
            process.wait(10)
