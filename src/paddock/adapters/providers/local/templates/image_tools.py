"""skopeo and umoci, run in a jail because they read untrusted data."""

import asyncio
import os
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.adapters.egress.registry_access import (
    PROXY,
    RegistryAccess,
    refusals,
    refused,
)
from paddock.adapters.providers.host.jail import Plan
from paddock.adapters.providers.host.jail_limits import jail_filter, limited_group
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.templates.programs import ProgramFailed, run
from paddock.domain.errors import TimedOut, TooLarge
from paddock.domain.image_reference import RegistryImage

SCRATCH = "/scratch"
"""The path of the scratch directory inside a jail."""
SOURCE = "/source"
_LOOK_S = 0.5
_REST = 4
"""The pause after each measurement, as a multiple of the time that it took."""
_POLICY = "/etc/containers/policy.json"
_CONTAINERS = (_POLICY, "/etc/containers/registries.conf", "/etc/containers/registries.conf.d")
_SMALL = 16 << 20
_HOSTS = b"127.0.0.1 localhost\n"
_TRUST = "/etc/ssl/certs/ca-certificates.crt"
_ENVIRONMENT = {"PATH": "/usr/bin:/usr/sbin:/bin", "HOME": SCRATCH, "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for one image."""

    size_mib: int = LocalConfig().image_mib
    entries: int = 2_000_000
    seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class ImageTools:
    """Runs skopeo and umoci, each time in new namespaces."""

    access: RegistryAccess = field(default_factory=RegistryAccess)
    bounds: Bounds = field(default_factory=Bounds)

    async def skopeo(
        self,
        *arguments: str,
        scratch: Path | None = None,
        source: Path | None = None,
        image: RegistryImage | None = None,
    ) -> bytes:
        """Run skopeo and return its output. It has a network only with an `image` in a registry."""
        # Without a policy file skopeo refuses everything. If the host has one, it applies.
        lax = [] if Path(_POLICY).exists() else ["--insecure-policy"]
        command = ("skopeo", *lax, *arguments)
        if image is None:
            return await self._bounded(command, scratch=scratch, source=source)
        self.access.check(image)
        return await self._online(command, image, scratch)

    async def umoci(self, *arguments: str, scratch: Path) -> None:
        await self._bounded(("umoci", *arguments), scratch=scratch, owners=True)

    async def _online(
        self, command: Sequence[str], image: RegistryImage, scratch: Path | None
    ) -> bytes:
        async with self.access.served() as (journal, channel):
            try:
                return await self._bounded(command, scratch=scratch, channel=channel)
            except ProgramFailed as failure:
                if found := refusals(journal):
                    raise refused(image, found[-1]) from failure
                raise

    async def _bounded(
        self,
        command: Sequence[str],
        *,
        scratch: Path | None = None,
        source: Path | None = None,
        channel: int = -1,
        owners: bool = False,
    ) -> bytes:
        with _shown(self.access.authorities()) as (options, files), limited_group() as groups:
            plan = Plan(
                tuple(command),
                (*options, *_surroundings(scratch, online=channel >= 0)),
                str(scratch or ""),
                str(source or ""),
                owners=owners,
                listeners=self.access.listeners if channel >= 0 else (),
                channel=channel,
                most_bytes=self.bounds.size_mib << 20,
                groups=groups,
            )
            fds = (*files, *([channel] if channel >= 0 else ()))
            try:
                async with asyncio.timeout(self.bounds.seconds):
                    work = run(plan.argv(), env=_ENVIRONMENT, inherit=False, pass_fds=fds)
                    return await self._watched(scratch, work)
            except TimeoutError as error:
                raise TimedOut(
                    f"the image was not ready after {self.bounds.seconds:g} s",
                    remediation="try again, or use a smaller image",
                ) from error

    async def _watched(self, scratch: Path | None, work: Coroutine[Any, Any, bytes]) -> bytes:
        """Return the program's output. Stop it if the scratch directory gets too large."""
        loop, pause, task = asyncio.get_running_loop(), _LOOK_S, asyncio.ensure_future(work)
        try:
            is_over = False
            while not is_over:
                is_over = bool((await asyncio.wait({task}, timeout=pause))[0])
                began = loop.time()
                if scratch is not None:
                    await asyncio.to_thread(self._check, scratch)
                pause = max(_LOOK_S, _REST * (loop.time() - began))
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def _check(self, scratch: Path) -> None:
        size, entries = _measured(scratch)
        if size > self.bounds.size_mib << 20:
            raise TooLarge(
                f"the image is larger than {self.bounds.size_mib} MiB",
                remediation="use a smaller image, or raise the setting local.image_mib",
            )
        if entries > self.bounds.entries:
            raise TooLarge(
                f"the image has more than {self.bounds.entries} files",
                remediation="use an image with fewer files",
            )


def _surroundings(scratch: Path | None, *, online: bool) -> Iterator[str]:
    """Yield the options that set environment variables, mounts and the working directory."""
    variables = {
        **_ENVIRONMENT,
        "TMPDIR": SCRATCH,
        "SSL_CERT_FILE": _TRUST,
        "SSL_CERT_DIR": "/none",
    }
    if online:
        proxy = "http://{}:{}".format(*PROXY)
        variables |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    for name, value in variables.items():
        yield from ("--setenv", name, value)
    for path in _CONTAINERS:
        yield from ("--ro-bind-try", path, path)
    if scratch is None:
        yield from ("--size", str(_SMALL), "--tmpfs", SCRATCH)
    yield from ("--chdir", SCRATCH)


@contextmanager
def _shown(authorities: str) -> Iterator[tuple[list[str], list[int]]]:
    """Options and descriptors for bubblewrap that all jails share."""
    options, files = [], []
    shown = {
        ("--ro-bind-data", "/etc/hosts"): _HOSTS,
        ("--ro-bind-data", _TRUST): authorities.encode(),
        ("--seccomp",): jail_filter(),
    }
    with ExitStack() as opened:
        for (option, *place), content in shown.items():
            file = opened.enter_context(os.fdopen(os.memfd_create("jail"), "wb"))
            file.write(content)
            file.flush()
            file.seek(0)
            files.append(file.fileno())
            options += [option, str(file.fileno()), *place]
        yield options, files


def _measured(scratch: Path) -> tuple[int, int]:
    """Return the size in bytes and the number of entries. Hard-linked files count once."""
    size = entries = 0
    linked: set[int] = set()
    for _, directories, names, here in os.fwalk(scratch, onerror=None):
        entries += len(directories) + len(names)
        for name in names:
            try:
                found = os.lstat(name, dir_fd=here)
            except OSError:
                continue  # it was removed meanwhile
            if found.st_nlink == 1 or found.st_ino not in linked:
                size += found.st_blocks * 512
            if found.st_nlink > 1:
                linked.add(found.st_ino)
    return size, entries
