"""The layer between template and sandbox: what of the host's own settings a sandbox shares.

The host's certificates make a company's own authorities work inside; its name servers are what an
open network needs. As an overlay layer, unlike a bind mount, the files can be replaced inside (a
package upgrade does), and nothing of it becomes part of a snapshot.
"""

import hashlib
import ipaddress
import shutil
from collections.abc import Sequence
from pathlib import Path

from paddock.adapters.egress.authority import HOST_STORES
from paddock.adapters.providers.local.storage.volumes import draft_name
from paddock.domain.egress.addresses import OURS

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_RESOLVERS = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
_ANY = OURS[1]
_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"
TRUST_ENV = dict.fromkeys(
    ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"), CERTIFICATES
)
"""For programs that bring certificates of their own instead of asking the system."""


def build(parent: Path, authority: str, mount_points: Sequence[str] = ()) -> Path:
    """The directory of the layer, made once for each content.

    A mount point that a runtime misses it would make on the sandbox's own disk.

    The installation's own authority is trusted beside those of the host: it vouches for hosts that
    a secret is bound to.
    """
    files = {
        "etc/hosts": _HOSTS.encode(),
        "etc/hostname": b"sandbox\n",
        "etc/resolv.conf": _resolver(),
    }
    certificates = _first_file(HOST_STORES) or b""
    files[CERTIFICATES.lstrip("/")] = certificates + authority.encode()
    content = (sorted(files.items()), list(mount_points))
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    layer = parent / digest
    if layer.is_dir():
        return layer
    half_made = parent / draft_name()
    for point in mount_points:
        (half_made / point.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = half_made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        path.chmod(0o644)
    # They hide what the template's directories of these names allow, whatever the umask.
    for directory in (half_made, *(each for each in half_made.rglob("*") if each.is_dir())):
        directory.chmod(0o755)
    try:
        half_made.rename(layer)
    except OSError:
        shutil.rmtree(half_made)
        if not layer.is_dir():
            raise  # otherwise another process was quicker
    return layer


def _first_file(candidates: tuple[str, ...]) -> bytes | None:
    return next((Path(name).read_bytes() for name in candidates if Path(name).is_file()), None)


def _resolver() -> bytes:
    """The first list of name servers that means something outside the host's own loopback.

    Under an allowlist any address will do, since questions are turned to the gateway.
    """
    for candidate in _RESOLVERS:
        path = Path(candidate)
        if not path.is_file():
            continue
        lines = path.read_text(errors="replace").splitlines()
        servers = [line.split()[1] for line in lines if line.startswith("nameserver ")]
        if any(not _is_loopback(server) for server in servers):
            return "".join(f"{line}\n" for line in lines).encode()
    return f"nameserver {_ANY}\n".encode()


def _is_loopback(server: str) -> bool:
    try:
        return ipaddress.ip_address(server.partition("%")[0]).is_loopback
    except ValueError:
        return True
