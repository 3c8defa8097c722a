"""npm, as far as agents are installed by it: asked for one package, and understood when it fails.

No script of any package is run: the programs lie ready in them.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddock.domain.agent import Package
from paddock.domain.errors import (
    Broken,
    LimitExceeded,
    PaddockError,
    Refused,
    TimedOut,
    Unavailable,
)

_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--json")
_LONGEST_S = 1200.0
_OUR_PREFIX = "PADDOCK_"
_UNREACHABLE = frozenset(
    "EAI_AGAIN ECONNREFUSED ECONNRESET EHOSTUNREACH ENETUNREACH ENOTFOUND ERR_SOCKET_TIMEOUT "
    "ETIMEDOUT EIDLETIMEOUT CERT_HAS_EXPIRED SELF_SIGNED_CERT_IN_CHAIN "
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY UNABLE_TO_VERIFY_LEAF_SIGNATURE".split()
)
_NOT_LET_IN = frozenset({"E401", "E403"})
_NOT_THERE = frozenset({"E404", "ETARGET", "ENOVERSIONS"})
_FULL = frozenset({"ENOSPC", "EDQUOT"})


def why_not() -> str:
    """Why nothing can be installed; empty when it can."""
    return "" if shutil.which("npm") else "npm is not installed on this host"


async def install(package: Package, directory: Path, inherit: Sequence[int]) -> None:
    """Put a package and all that it needs below a directory.

    Whatever becomes of this process, npm keeps the descriptors open for as long as it lives.
    """
    if why := why_not():
        raise Unavailable(
            f"{package} cannot be installed: {why}",
            remediation="install Node.js with npm (`apt-get install nodejs npm`)",
        )
    command = ["npm", "install", *_OPTIONS, "--prefix", str(directory)]
    process = await asyncio.create_subprocess_exec(
        *(*command, f"{package.name}@{package.version}"),
        cwd=directory,
        env={name: value for name, value in os.environ.items() if not name.startswith(_OUR_PREFIX)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=inherit,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LONGEST_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise TimedOut(
            f"npm did not install {package} within {_LONGEST_S / 60:g} minutes",
            remediation="try again when this host has less to do, or a better connection",
        ) from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode != 0:
        raise explained(package, out, err)


def explained(package: Package, out: bytes, err: bytes) -> PaddockError:
    """What npm's complaint means for whoever wants the package, and what to do about it."""
    told = _told(out)
    code, summary = str(told.get("code", "")), str(told.get("summary", ""))
    said = summary.strip() or err.decode(errors="replace").strip()[-500:] or "it does not say why"
    if code in _UNREACHABLE:
        return Unavailable(
            f"npm does not reach its registry for {package}: {said}",
            remediation="see whether this host has a way there; a mirror or a proxy is set with "
            "`npm config set registry URL` or `npm config set proxy URL`",
        )
    if code in _NOT_LET_IN:
        return Refused(
            f"npm's registry does not let this host have {package}: {said}",
            remediation="`npm config get registry` names it; `npm login` lets in",
        )
    if code in _NOT_THERE:
        return Refused(
            f"npm's registry has no {package}: {said}",
            remediation="`npm config get registry` names it; a mirror may lag behind",
        )
    if code in _FULL:
        return LimitExceeded(
            f"there is no room for {package}: {said}",
            remediation="free some of the disk, or set agents.dir to a larger one",
        )
    return Broken(f"npm could not install {package} ({code or 'no code'}): {said}")


def _told(out: bytes) -> Mapping[str, object]:
    try:
        told = json.loads(out)["error"]
    except (ValueError, TypeError, LookupError):
        return {}
    return told if isinstance(told, dict) else {}
