"""Sandboxes that no process of the host can enter: the guest starts inside, from a zip file."""

from dataclasses import replace
from pathlib import Path

from paddock.adapters.providers.local.bundle import GUEST_STATE, BundleSpec, bind
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.records import SandboxRecord
from paddock.domain.errors import InvalidRequest
from paddock.guest import pack

SOCKET = "guest.sock"
_ZIP = "/dev/.paddock-guest.zip"
_DOOR = "/run/paddock-door"
_PYTHONS = ("usr/bin/python3", "usr/local/bin/python3", "bin/python3")


def prepare(spec: BundleSpec, record: SandboxRecord, layout: Layout, pool: Path) -> BundleSpec:
    """The bundle of a sandbox whose first process is the packed guest."""
    door = layout.door(record.ref)
    door.mkdir(mode=0o700, exist_ok=True)
    (door / SOCKET).unlink(missing_ok=True)
    token = door / "token"
    token.touch(mode=0o600)
    token.write_text(record.token)
    archive = pool / "host" / "guest.zip"
    if not archive.exists():
        pack.build(str(archive))
    python = find_python(Path(record.lower), record.template)
    return replace(
        spec,
        init="",
        init_argv=(
            *(python, "-I", "-S", _ZIP),
            *("--socket", f"{_DOOR}/{SOCKET}"),
            *("--token-file", f"{_DOOR}/token"),
            *("--state-dir", GUEST_STATE),
            *("--sandbox-id", record.ref),
            *("--user", record.user),
            *(("--workdir", record.workdir) if record.workdir else ()),
        ),
        extra_mounts=(bind(str(archive), _ZIP, "ro"), bind(str(door), _DOOR, "rw")),
    )


def find_python(lower: Path, template: str) -> str:
    """Where the image has its Python, which this kind of sandbox needs."""
    for candidate in _PYTHONS:
        path = lower / candidate
        if path.exists() or path.is_symlink():
            return f"/{candidate}"
    raise InvalidRequest(
        f"template {template} has no python3, and a gVisor sandbox needs one for its guest",
        remediation="install Python 3.9 or newer in the template, or use the runtime crun",
    )
