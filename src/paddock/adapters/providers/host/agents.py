"""The directory of agents on this host, as sandboxes need it."""

import shutil
from pathlib import Path

from paddock.domain.errors import InvalidRequest
from paddock.ports.provider import Finding, Status

_SHOWN = 0o755


def finding() -> Finding:
    """Whether agents can be installed here; what is installed works also where they cannot."""
    if program := shutil.which("npm"):
        return Finding("agent tools", Status.OK, f"npm at {program}")
    found = "no npm: only agents that are installed already, or that a template has, can be used"
    return Finding("agent tools", Status.DEGRADED, found, "apt-get install nodejs npm")


def open_to_all(directory: Path) -> Path:
    """It is there, and everyone may read it: to this host the root of a sandbox is nobody."""
    found = directory.absolute()
    try:
        found.mkdir(parents=True, exist_ok=True)
        if found.stat().st_mode & 0o777 != _SHOWN:
            found.chmod(_SHOWN)
    except OSError as error:
        raise InvalidRequest(
            f"agents cannot be kept in {found}: {error.strerror}",
            remediation="set agents.dir to a directory that this user can write to",
        ) from error
    return found
