"""Trying a program that was just downloaded: as nobody, without a network, and read-only."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_NOBODY = 65_534
_PATIENCE_S = 120.0
_UNSHARED = ("unshare", "--net", "--mount", "--propagation", "private")
# A mount of its own, because nobody may be unable to come to where the program lies.
_FENCED = (
    'mount --bind -o ro "$1" /mnt && exec setpriv '
    f"--reuid={_NOBODY} --regid={_NOBODY} --clear-groups --no-new-privs "
    '-- "/mnt/$2" --version'
)


async def why_not(directory: Path, program: str) -> str:
    """What is wrong with a program in a directory; empty when it says its version."""
    async with _home() as home:
        process = await asyncio.create_subprocess_exec(
            *_command(directory, program),
            cwd="/",
            env={"HOME": home, "TMPDIR": home, "PATH": os.environ.get("PATH", os.defpath)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                said, _ = await process.communicate()
        except TimeoutError:
            return f"it has not said its version within {_PATIENCE_S:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    text = said.decode(errors="replace").strip()
    if process.returncode != 0:
        return f"asked for its version it ended with {process.returncode}: {text[-300:]}"
    return "" if text else "asked for its version it said nothing"


def _command(directory: Path, program: str) -> list[str]:
    if os.geteuid() != 0:
        return [str(directory / program), "--version"]
    return [*_UNSHARED, "sh", "-c", _FENCED, "sh", str(directory), program]


@asynccontextmanager
async def _home() -> AsyncIterator[str]:
    """What such a program wants to write, and does so in vain anywhere else."""
    home = await asyncio.to_thread(tempfile.mkdtemp, prefix="paddock-trial-")
    try:
        if os.geteuid() == 0:
            os.chown(home, _NOBODY, _NOBODY)
        yield home
    finally:
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
