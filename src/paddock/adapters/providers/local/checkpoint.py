"""Memory on disk: whether it works on this host, found out by trying it once."""

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from paddock.adapters.providers.finishing import uncancelled
from paddock.adapters.providers.host.launch_control import LaunchControl
from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.layout import Layout
from paddock.domain.errors import PaddockError, Unsupported
from paddock.ports.provider import Finding, Status

INSTEAD = "pause keeps memory in RAM; a snapshot without memory keeps the disk"

_JOINED = "CRIU cannot write down a guest that was joined from the host"
_UNTRIED = "runsc can only be tried by root, when the provider is opened"
_PATIENCE_S = 5.0
_TRIAL_S = 20.0
_INIT = "/init"


@dataclass(frozen=True, slots=True)
class Tried:
    """What a trial has shown."""

    works: bool
    why: str
    """Why not; of one that works, what it was tried with."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a trial holds for: another version or kernel is tried anew."""

    runtime: str
    program_mtime: float
    kernel: str


async def tried(config: LocalConfig, layout: Layout, launch: LaunchControl, init: str) -> Tried:
    """The result for the runtime of this provider. One that works is remembered."""
    engine = runtime.choose(config.runtime)
    if engine.joinable:
        return Tried(works=False, why=_JOINED)
    terms = _Terms(engine.version, Path(engine.program).stat().st_mtime, platform.release())
    with contextlib.suppress(OSError, ValueError):
        if json.loads(_note(layout).read_text()) == asdict(terms):
            return Tried(works=True, why=engine.version)
    trial = Trial(engine, launch, layout.run / "trial", init)
    result = await uncancelled(trial.run())
    if result.works:
        with contextlib.suppress(OSError):
            _note(layout).write_text(json.dumps(asdict(terms)))
    return result


def _note(layout: Layout) -> Path:
    return layout.data / "checkpoint.json"


@dataclass(frozen=True, slots=True)
class Trial:
    """A sandbox with one static program in it: written down, ended, and brought back."""

    engine: runtime.Runtime
    launch: LaunchControl
    place: Path
    init: str

    async def run(self) -> Tried:
        """One at a time, after what a trial that was killed may have left."""
        with await asyncio.to_thread(_locked, self.place.with_suffix(".lock")):
            await self._clean()
            try:
                self._lay_out()
                failure = await self._go_through()
            except (OSError, PaddockError) as error:
                failure = f"{self.engine.name} could not be tried: {error}"
            finally:
                await self._clean()
        return Tried(works=not failure, why=failure or self.engine.version)

    async def _go_through(self) -> str:
        """What went wrong; empty when nothing did."""
        for name, argv in self._steps():
            finished = await self.launch.run(argv, timeout=_TRIAL_S)
            if finished.code != 0:
                said = finished.output.strip().partition("\n")[0]
                return f"{self.engine.name} {name}: {said}"
        return ""

    def _steps(self) -> Iterator[tuple[str, list[str]]]:
        engine, state, image = self.engine, self.place / "state", self.place / "image"
        yield "run", engine.run_argv(state, self.place, "one")
        yield "pause", engine.simple_argv(state, "pause", "one")
        yield "checkpoint", engine.checkpoint_argv(state, image, "one")
        yield "resume", engine.simple_argv(state, "resume", "one")
        yield "delete", engine.delete_argv(state, "one")
        # As with a real sandbox, the copy has other arguments. Newer gVisor builds refuse them.
        self._write_bundle("-P", "two")
        yield "restore", engine.restore_argv(state, self.place, image, "two")
        # Only one that goes on can be paused.
        yield "pause", engine.simple_argv(state, "pause", "two")

    def _lay_out(self) -> None:
        for name in ("rootfs", "state", "image"):
            (self.place / name).mkdir(parents=True, mode=0o700)
        shutil.copy(self.init, self.place / "rootfs" / _INIT[1:])
        self._write_bundle("-P")

    def _write_bundle(self, *arguments: str) -> None:
        bundle = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": [_INIT, *arguments],
                "env": [],
                "cwd": "/",
            },
            "root": {"path": str(self.place / "rootfs"), "readonly": True},
            "mounts": [],
            "linux": {"namespaces": [{"type": kind} for kind in ("mount", "pid", "network")]},
        }
        (self.place / "config.json").write_text(json.dumps(bundle))

    async def _clean(self) -> None:
        if not self.place.exists():
            return
        for name in ("one", "two"):
            argv = self.engine.delete_argv(self.place / "state", name)
            with contextlib.suppress(PaddockError):
                await self.launch.run(argv, timeout=_TRIAL_S)
        shutil.rmtree(self.place, ignore_errors=True)


@contextlib.contextmanager
def _held(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path) -> contextlib.AbstractContextManager[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return _held(descriptor)


def refusal(found: Tried) -> Unsupported:
    return Unsupported(
        f"the local provider keeps no memory on disk: {found.why}", remediation=INSTEAD
    )


def finding(config: LocalConfig, found: Tried | None = None) -> Finding:
    """What a trial has shown, or what can be said without one."""
    name, status = "checkpoint to disk", Status.DEGRADED
    if found is not None and found.works:
        return Finding(name, Status.OK, f"tried with {found.why}")
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    engine, here = str(config.runtime), [criu(path)]
    # A runtime that is not there has a finding of its own.
    with contextlib.suppress(PaddockError):
        chosen = runtime.choose(config.runtime)
        engine = chosen.name
        here.append(support(chosen))
    why = found.why if found is not None else _UNTRIED if engine == "runsc" else _JOINED
    return Finding(name, status, f"off: {why}; here: {', '.join(here)}", INSTEAD)


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
