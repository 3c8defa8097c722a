"""The key by which the gateway is known: made once, kept in the data directory."""

import os
import tempfile
from pathlib import Path

import asyncssh

from paddock.domain.errors import InvalidRequest

FILE = "ssh-host-key"


def host_key(data: Path) -> asyncssh.SSHKey:
    """The one that is there, or a new one; readable by its owner only, whole or not at all."""
    path = data / FILE
    try:
        return asyncssh.import_private_key(path.read_bytes())
    except FileNotFoundError:
        _make(path)
    except asyncssh.KeyImportError as error:
        raise InvalidRequest(
            f"{path} is no private key: {error}",
            remediation="restore it, or remove it: clients will then be asked to trust a new one",
        ) from error
    return asyncssh.import_private_key(path.read_bytes())


def _make(path: Path) -> None:
    made = asyncssh.generate_private_key("ssh-ed25519", comment="paddock")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(made.export_private_key("openssh"))
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)
    except FileExistsError:
        pass  # another process was quicker, and its key is as good
    finally:
        Path(name).unlink(missing_ok=True)


def public_line(key: asyncssh.SSHKey) -> str:
    """As a known_hosts file has it, without the host."""
    return " ".join(key.export_public_key("openssh").decode().split()[:2])
