"""Debian root file systems, made by mmdebstrap with the host's own package sources."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from paddock.adapters.providers.local.templates import apt_sources, node
from paddock.adapters.providers.local.templates.contract import USER, Root
from paddock.adapters.providers.local.templates.defaults import Defaults
from paddock.adapters.providers.local.templates.programs import ProgramFailed, need, run
from paddock.domain.errors import Broken, InvalidRequest, PaddockError, QuotaExceeded, Unavailable

_Progress = Callable[[str, float | None], None]

_NODE = "node@"
_PACKAGE = re.compile(r"^[a-z0-9][a-z0-9+.-]+$")
_SUITE = re.compile(r"^[a-z][a-z0-9-]*$")

DPKG = """\
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
force-unsafe-io
"""
"""Stays in force inside, where one wants a package quickly and not its manual. It is put there when
the essential packages are extracted: given to mmdebstrap, it starts a filter for each of them."""

DPKG_FILE = "etc/dpkg/dpkg.cfg.d/paddock"
_WRITE_DPKG = f"cat > \"$1/{DPKG_FILE}\" <<'END'\n{DPKG}END\n"

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULTS = Defaults(env=(("PATH", f"{PATH}:/home/{USER}/.local/bin"), ("LANG", "C.UTF-8")))

_STAGES = (
    ("running apt-get update", 0.02, "reading the package lists", 0),
    ("downloading packages", 0.06, "downloading packages", 1),
    ("extracting archives", 0.15, "extracting the essential packages", 0),
    ("adding Node.js", 0.20, "adding Node.js", 0),
    ("installing essential", 0.22, "installing the essential packages", 2),
    ("installing remaining", 0.42, "installing packages", 3),
    ("cleaning package lists", 0.90, "cleaning up", 0),
)
"""A sign of each in the output, where it begins, its name, and how many lines a package takes."""

_FETCH_SIGNS = ("could not resolve", "temporary failure", "failed to fetch", "could not connect")


async def build(suite: str, packages: Sequence[str], root: Path, progress: _Progress) -> Defaults:
    """`packages` are Debian's, or `node@VERSION` for Node.js with npm."""
    need("mmdebstrap")
    node_version, included = split(suite, packages)
    command = ["mmdebstrap", "--verbose", "--mode=root", "--format=directory", "--variant=minbase"]
    command += [f"--extract-hook={_WRITE_DPKG}"]
    command += ['--aptopt=Acquire::Languages "none"']
    command += [f"--include={','.join(included)}"] if included else []
    command += [suite, str(root), *apt_sources.of_host(suite)]
    try:
        await run(command, on_line=Reporter(progress))
    except ProgramFailed as failure:
        raise explain(suite, failure) from failure
    await _trim(root)
    if node_version:
        progress("adding Node.js", 0.92)
        await node.install(node_version, root, root.parent / "node")
    for path, text in CUSTOM.items():
        Root(root).write(path, text)
    return DEFAULTS


def split(suite: str, packages: Sequence[str]) -> tuple[str, list[str]]:
    if not _SUITE.match(suite):
        raise InvalidRequest(
            f"{suite!r} is no name of a Debian release", remediation="use one such as 'bookworm'"
        )
    nodes = [name.removeprefix(_NODE) for name in packages if name.startswith(_NODE)]
    included = sorted(name for name in packages if not name.startswith(_NODE))
    for name in included:
        if not _PACKAGE.match(name):
            raise InvalidRequest(
                f"{name!r} is no name of a Debian package",
                remediation="use names as `apt search` shows them, or node@VERSION",
            )
    return (nodes[0] if nodes else ""), included


async def _trim(root: Path) -> None:
    """Of the essential packages. Directories stay: maintainers' scripts link into them."""
    share = root / "usr" / "share"
    files = ["-not", "-type", "d", "-not", "-name", "copyright", "-delete"]
    for name in ("doc", "man", "info", "locale"):
        await run(["find", str(share / name), *files])


CUSTOM = {
    "etc/hostname": "sandbox\n",
    "etc/hosts": "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
    "etc/resolv.conf": "",
    "etc/machine-id": "",
    "etc/default/locale": "LANG=C.UTF-8\n",
    # Without an identity `git commit` fails. Settings of a repository or user take precedence.
    "etc/gitconfig": "[user]\n\tname = sandbox\n\temail = sandbox@localhost\n",
    # A sandbox is what a virtual environment would protect the system from.
    "etc/pip.conf": "[global]\nbreak-system-packages = true\n",
}
"""What was taken from this host goes; what makes a sandbox pleasant comes."""


class Reporter:
    """From mmdebstrap's lines to a fraction: stages by name, in between by lines per package."""

    def __init__(self, progress: _Progress) -> None:
        self._progress = progress
        self._text, self._floor, self._ceiling, self._weight = "starting", 0.0, 0.02, 0
        self._packages, self._lines = 0, 0

    def __call__(self, line: str) -> None:
        if line.startswith("I: "):
            self._enter_stage(line)
        elif found := re.search(r"(\d+) newly installed", line):
            self._packages = int(found[1])
        elif line.startswith(("Get:", "Unpacking ", "Setting up ")):
            self._step()

    def _enter_stage(self, line: str) -> None:
        for number, (sign, fraction, text, weight) in enumerate(_STAGES):
            if sign in line:
                ends = [stage[1] for stage in _STAGES[number + 1 :]] or [0.92]
                self._text, self._floor, self._ceiling = text, fraction, ends[0]
                self._weight, self._lines = weight, 0
                self._progress(text, fraction)

    def _step(self) -> None:
        self._lines += 1
        total = self._packages * self._weight
        share = min(self._lines / total, 1.0) if total else 0.0
        self._progress(self._text, self._floor + share * (self._ceiling - self._floor))


def explain(suite: str, failure: ProgramFailed) -> PaddockError:
    if line := failure.mentions("no space left", "disk quota exceeded"):
        return QuotaExceeded(
            f"there is no room to build Debian {suite}: {line}",
            remediation="delete sandboxes, snapshots or templates that are no longer needed",
        )
    if line := failure.mentions(*_FETCH_SIGNS):
        return Unavailable(
            f"the packages of Debian {suite} cannot be fetched: {line}",
            remediation="see that `apt-get update` works on this host (network, proxy), then try "
            "again; on a host that is no Debian, install debian-archive-keyring",
        )
    if line := failure.mentions("unable to locate package", "has no installation candidate"):
        return InvalidRequest(
            f"Debian {suite} lacks a package: {line}", remediation="correct the template's packages"
        )
    return Broken(
        f"{failure} while building Debian {suite}",
        remediation=f"its last lines:\n    {failure.last_lines()}",
    )
