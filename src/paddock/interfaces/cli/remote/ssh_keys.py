"""Keys for `paddock ssh`: each for one sandbox and an hour, renewed before that is over."""

import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from paddock.interfaces.client import Server
from paddock.interfaces.client.server import segment, without_nothing

_RENEWED_BEFORE_S = 300.0
_RECENT = 50
_KEY, _NOTE, _HOSTS = "id_ed25519", "access.json", "known_hosts"


@dataclass(frozen=True, slots=True)
class Way:
    """How `ssh` gets in: the server's answer, and where the key is."""

    access: dict[str, Any]
    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / _KEY

    @property
    def settings(self) -> dict[str, str]:
        """What an ssh_config says about it."""
        return {
            "HostName": self.access["host"],
            "Port": str(self.access["port"]),
            "User": self.access["user_name"],
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "PreferredAuthentications": "publickey",
            "HostKeyAlias": f"paddock-{self.access['sandbox_id']}",
            "UserKnownHostsFile": str(self.folder / _HOSTS),
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
            "ForwardAgent": "no",
            "ServerAliveInterval": "30",
        }

    def arguments(self) -> list[str]:
        """For `ssh`, before anything of the user's."""
        words = [f"-o{name}={_quoted(value)}" for name, value in self.settings.items()]
        return [*words, self.access["host"]]

    def block(self, name: str, url: str) -> str:
        """For an ssh_config: renewed by itself whenever something connects."""
        alias = f"paddock-{name}"
        renew = shlex.join(["env", f"PADDOCK_URL={url}", *_ourselves(), "ssh", name, "--renew"])
        lines = [f"    {name} {_quoted(value)}" for name, value in self.settings.items()]
        match = f'Match originalhost {alias} exec "{renew}"'
        return "\n".join((match, f"Host {alias}", *lines, ""))


async def way_in(server: Server, name: str, *, user: str = "", lasts_s: float | None = None) -> Way:
    """The one that was made before while it lasts, otherwise a new one."""
    path = f"/v1/sandboxes/{segment(name)}/ssh"
    page = await server.call("GET", path, query={"limit": _RECENT})
    for access in page["items"]:
        kept = _kept(_folder(server.url, access["sandbox_id"], user), access)
        if kept is not None and lasts_s is None:
            return kept
    return await _made(server, path, user, lasts_s)


async def _made(server: Server, path: str, user: str, lasts_s: float | None) -> Way:
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    wish = without_nothing(public_key=public.decode(), lasts_s=lasts_s, user=user or None)
    access = await server.call("POST", path, json=wish)
    folder = _folder(server.url, access["sandbox_id"], user)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    way = Way(access, folder)
    # The server knows the key by now: whichever of two that were made at once stays, it works.
    _write(folder / _HOSTS, f"{way.settings['HostKeyAlias']} {access['host_key']}\n".encode())
    _write(
        way.key,
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        ),
    )
    _write(folder / _NOTE, json.dumps(access).encode())
    return way


def _kept(folder: Path, listed: dict[str, Any]) -> Way | None:
    """What is here of an access that the server has, if it lasts a while yet."""
    try:
        note = json.loads((folder / _NOTE).read_bytes())
        complete = note["id"] == listed["id"] and (folder / _KEY).exists()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not complete or listed["revoked_at"] or not _lasts(listed):
        return None
    return Way(note, folder)


def _lasts(access: dict[str, Any]) -> bool:
    made, ends = (_seconds(access[name]) for name in ("created_at", "expires_at"))
    return ends - time.time() > min(_RENEWED_BEFORE_S, (ends - made) / 5)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _folder(url: str, sandbox_id: str, user: str) -> Path:
    home = os.environ.get("XDG_CONFIG_HOME", "") or Path("~").expanduser() / ".config"
    server = hashlib.sha256(url.encode()).hexdigest()[:12]
    part = f"{sandbox_id}-{user}" if user else sandbox_id
    return Path(home) / "paddock" / "ssh" / server / part.replace("/", "_")


def _write(path: Path, content: bytes) -> None:
    """For its owner only, and whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).replace(path)


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


def _ourselves() -> Sequence[str]:
    found = shutil.which("paddock")
    return [found] if found else [sys.executable, "-m", "paddock"]
