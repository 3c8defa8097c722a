"""Memory on disk: what this host has for it, and why it is off nevertheless."""

import contextlib
import json
import os
import shutil
import subprocess

from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.config import LocalConfig
from paddock.domain.errors import PaddockError, Unsupported
from paddock.ports.provider import Finding, Status

INSTEAD = "pause keeps memory in RAM; a snapshot without memory keeps the disk"

_JOINED = "CRIU cannot write down a guest that was joined from the host"
_PACKED = "what runsc has for it is not tried with a guest whose socket is on the host"
_PATIENCE_S = 5.0


def refusal(config: LocalConfig) -> Unsupported:
    return Unsupported(
        f"the local provider keeps no memory on disk: {_why(config.runtime)}", remediation=INSTEAD
    )


def finding(config: LocalConfig) -> Finding:
    """No installation turns it on, so what is there is said and nothing is advised for it."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    name, here = str(config.runtime), [criu(path)]
    # A runtime that is not there has a finding of its own.
    with contextlib.suppress(PaddockError):
        chosen = runtime.choose(config.runtime)
        name = chosen.name
        here.append(support(chosen))
    found = f"off: {_why(name)}; here: {', '.join(here)}"
    return Finding("checkpoint to disk", Status.DEGRADED, found, INSTEAD)


def _why(name: str) -> str:
    return _PACKED if name == "runsc" else _JOINED


def criu(path: str) -> str:
    program = shutil.which("criu", path=path)
    if program is None:
        return "no criu"
    _, said = _run(program, "--version")
    version = said.partition("Version:")[2].split()
    name = f"criu {version[0] if version else 'of an unknown version'}"
    if os.geteuid() != 0:
        return name
    code, _ = _run(program, "check")
    return f"{name} whose own check {'fails' if code else 'passes'}"


def support(chosen: runtime.Runtime) -> str:
    match chosen.name:
        case "crun":
            _, said = _run(chosen.program, "--version")
            return f"crun built {'with' if '+CRIU' in said.split() else 'without'} CRIU"
        case "runc":
            return f"runc built {'with' if _runc_can(chosen.program) else 'without'} CRIU"
    return f"{chosen.name} with a checkpoint of its own"


def _runc_can(program: str) -> bool:
    _, said = _run(program, "features")
    try:
        notes = json.loads(said).get("annotations") or {}
    except ValueError:
        return False
    return bool(notes.get("org.opencontainers.runc.checkpoint.enabled") == "true")


def _run(*words: str) -> tuple[int, str]:
    """The exit code and the output; a program that does not answer has said nothing."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1, ""
    return done.returncode, done.stdout
