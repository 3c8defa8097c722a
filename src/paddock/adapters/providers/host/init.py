"""The first process of a sandbox that guests are joined to: a static program that only reaps."""

import shutil
from pathlib import Path

from paddock.domain.errors import Unavailable

INIT = "/dev/.paddock-init"
"""Where it lies inside: on /dev, which is never part of a snapshot."""
_PROGRAMS = ("/usr/bin/catatonit", "/usr/libexec/podman/catatonit")


def find_init(wish: str, setting: str) -> str:
    """The program on this host: the one that the setting of that name asks for, or catatonit."""
    for program in (wish,) if wish else (*_PROGRAMS, shutil.which("catatonit") or ""):
        if program and Path(program).is_file():
            return program
    raise Unavailable(
        f"no program to be a sandbox's first process was found (looked for {wish or 'catatonit'})",
        remediation=f"`apt-get install catatonit`, or set {setting} to a static init",
    )
