"""A Debian that is begun without privileges: fetched and unpacked here, configured in a container.

apt and dpkg-deb need no root to fetch and unpack packages; to install them does. So what is made
here is a root file system whose essential packages are unpacked, enough for its own dpkg to run,
with all packages beside them and the script that installs them. An engine's container runs it.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from paddock.adapters.providers.local.storage.faults import explained
from paddock.adapters.providers.local.templates import apt_sources, debian, node
from paddock.adapters.providers.local.templates.contract import UID, USER, Root
from paddock.adapters.providers.local.templates.debian import Reporter
from paddock.adapters.providers.local.templates.programs import ProgramFailed, run
from paddock.domain.errors import Unavailable

WORK = "paddock-build"
"""The directory inside that is gone when the script has ended."""
SCRIPT = ("/bin/sh", f"/{WORK}/script")

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_MIRROR = "http://deb.debian.org/debian"
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ESSENTIAL, _REQUIRED = "?essential", "?priority(required)"
_APT = """\
Dir::State "{place}/state";
Dir::State::status "{place}/status";
Dir::Cache "{place}/cache";
Dir::Etc "{place}/etc";
Dir::Etc::TrustedParts "/etc/apt/trusted.gpg.d";
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
"""
_SCRIPT = f"""\
set -e
exec 2>&1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH={debian.PATH}
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
echo "I: installing essential packages"
dpkg --install --force-depends /{WORK}/essential/*.deb
echo "I: installing remaining packages"
apt-get install --yes -oAPT::Sandbox::User=root /{WORK}/others/*.deb
rm /usr/sbin/policy-rc.d
echo "I: cleaning package lists"
cp -R /{WORK}/files/. /
useradd --uid {UID} --user-group --create-home --shell /bin/bash {USER}
install -d -o {UID} -g {UID} /home/{USER}/.local /home/{USER}/.local/bin
chmod 755 /home/{USER}
if [ -d /etc/sudoers.d ]; then
    echo '#{UID} ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/paddock
    chmod 440 /etc/sudoers.d/paddock
fi
rm -rf /{WORK} /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt/* /var/log/dpkg.log
"""


async def begin(suite: str, packages: Sequence[str], root: Path, reporter: Reporter) -> None:
    """Fill `root`, all of which is to be root's; its parent is used for scratch."""
    _need_apt()
    node_version, included = debian.split(suite, packages)
    try:
        await _unpack(suite, included, root, reporter)
    except ProgramFailed as failure:
        raise debian.explain(suite, failure) from failure
    if node_version:
        reporter("I: adding Node.js")
        await node.install(node_version, root, root.parent / "node")
        await run(["chmod", "-R", "a+rX", str(root / "usr" / "local")])  # whatever the umask


async def _unpack(suite: str, included: list[str], root: Path, hear: Callable[[str], None]) -> None:
    apt = root.parent / "apt"
    sources = apt_sources.of_host(suite) or _usual_sources(suite)
    env = await asyncio.to_thread(_configure, apt, sources)
    hear("I: running apt-get update")
    await run(["apt-get", "update", "--error-on=any"], env=env, on_line=hear)
    hear("I: downloading packages")
    fetch = ["apt-get", "install", "--yes", "--download-only", "-oAPT::Keep-Downloaded-Packages=1"]
    await run([*fetch, _ESSENTIAL], env=env)
    essential = sorted((apt / "cache" / "archives").glob("*.deb"))
    await run([*fetch, _ESSENTIAL, _REQUIRED, "apt", *included], env=env)
    hear("I: extracting archives")
    await asyncio.to_thread(_make_tree, root, sources)
    for package in essential:
        await _extract(package, root)
    await asyncio.to_thread(_lay_out, apt, {path.name for path in essential}, root)


async def _extract(package: Path, root: Path) -> None:
    """Unlike `dpkg-deb --extract` this goes through the links of a merged /usr."""
    extract = "tar --extract --same-permissions --keep-directory-symlink"
    pipe = f'dpkg-deb --fsys-tarfile "$1" | {extract} --directory "$2"'
    await run(["sh", "-ec", pipe, "sh", str(package), str(root)])


def _need_apt() -> None:
    if missing := [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]:
        raise Unavailable(
            f"without root a Debian is put together by apt-get and dpkg-deb, and this host has no "
            f"{' and no '.join(missing)}",
            remediation="name an image of the engine instead, such as --template "
            "docker:python:3-slim, or set local.template_cache to a directory with the archive "
            "that another host has made",
        )


def _usual_sources(suite: str) -> list[str]:
    origin = f"deb [signed-by={_KEYRING}] {_MIRROR}"
    return [
        f"{origin} {suite} main",
        f"{origin} {suite}-updates main",
        f"{origin}-security {suite}-security main",
    ]


def _configure(apt: Path, sources: list[str]) -> dict[str, str]:
    """An apt of its own: nothing of this host's state is read or changed."""
    with explained(apt):
        for directory in ("state/lists/partial", "cache/archives/partial", "etc/apt.conf.d"):
            (apt / directory).mkdir(parents=True)
        (apt / "status").touch()
        (apt / "etc" / "sources.list").write_text("".join(f"{line}\n" for line in sources))
        (apt / "apt.conf").write_text(_APT.format(place=apt))
    return {"APT_CONFIG": str(apt / "apt.conf")}


def _make_tree(root: Path, sources: list[str]) -> None:
    with explained(root):
        for name in _MERGED:
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        listed = "".join(f"{line}\n" for line in sources)
        for name, text in ((debian.DPKG_FILE, debian.DPKG), ("etc/apt/sources.list", listed)):
            (root / name).parent.mkdir(parents=True)
            (root / name).write_text(text)
        for path in (root, *root.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)


def _lay_out(apt: Path, essential: set[str], root: Path) -> None:
    """The packages and the script where the script expects them."""
    with explained(root):
        for name in ("essential", "others", "files"):
            (root / WORK / name).mkdir(parents=True)
        for package in (apt / "cache" / "archives").glob("*.deb"):
            kind = "essential" if package.name in essential else "others"
            package.rename(root / WORK / kind / package.name)
        (root / WORK / "script").write_text(_SCRIPT)
        shutil.rmtree(apt)
    files = Root(root / WORK / "files")
    for path, text in debian.CUSTOM.items():
        for parent in reversed(Path(path).parents[:-1]):
            files.mkdir(str(parent))
        files.write(path, text)
