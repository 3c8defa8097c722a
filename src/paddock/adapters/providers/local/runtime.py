"""OCI runtimes: which one, and how it is told to start a sandbox."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paddock.domain.errors import InvalidRequest, Unavailable

PREFERENCE = ("crun", "runc", "runsc")
_RUNSC_FILES = ("state", "lock")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime found on this host."""

    name: str
    program: str
    version: str

    @property
    def joinable(self) -> bool:
        """Whether a process of the host can enter its sandboxes; gVisor's kernel has no door."""
        return self.name != "runsc"

    def run_argv(self, state: Path, bundle: Path, ref: str) -> list[str]:
        places = ("--bundle", str(bundle), "--pid-file", str(bundle / "pid"))
        return [*self._argv(state, "run"), "--detach", *places, ref]

    def restore_argv(self, state: Path, bundle: Path, image: Path, ref: str) -> list[str]:
        """As `run_argv`, but its processes are those that were written to the image."""
        places = ("--bundle", str(bundle), "--pid-file", str(bundle / "pid"))
        return [
            *self._argv(state, "restore"),
            *("--detach", "--image-path", str(image), *places, ref),
        ]

    def checkpoint_argv(self, state: Path, image: Path, ref: str) -> list[str]:
        """To write what runs in it to a directory; it goes on."""
        return [
            *self._argv(state, "checkpoint"),
            *("--leave-running", "--image-path", str(image), ref),
        ]

    def simple_argv(self, state: Path, verb: str, ref: str) -> list[str]:
        """For the commands that take nothing else: pause, resume, ps."""
        return [*self._argv(state, verb), ref]

    def _argv(self, state: Path, verb: str) -> list[str]:
        return [self.program, "--root", str(state), *self._options(), verb]

    def exec_argv(self, state: Path, ref: str) -> list[str]:
        """To run a program in a sandbox as its root; the program follows."""
        return [*self._argv(state, "exec"), ref]

    def delete_argv(self, state: Path, ref: str) -> list[str]:
        return [*self._argv(state, "delete"), "--force", ref]

    def _options(self) -> tuple[str, ...]:
        match self.name:
            case "crun":
                return ("--cgroup-manager=cgroupfs",)
            case "runsc":
                return _runsc_options(self.program)
        return ()


def refs_in(state: Path) -> set[str]:
    """The sandboxes that a runtime has something of: a directory, or runsc's files for each."""
    names = {path.name for path in state.iterdir()} if state.is_dir() else set()
    return {name.removeprefix("runsc-").partition("_")[0].partition(".")[0] for name in names}


def forget(state: Path, ref: str) -> None:
    """What a runtime that was not asked to delete a sandbox has left of it."""
    shutil.rmtree(state / ref, ignore_errors=True)
    for name in (f"runsc-{ref}.sock", *(f"{ref}_sandbox:{ref}.{kind}" for kind in _RUNSC_FILES)):
        (state / name).unlink(missing_ok=True)


@cache
def _runsc_options(program: str) -> tuple[str, ...]:
    """Builds differ in what they know; the safe choice is the same for all.

    Only sockets that the sandbox itself makes may be seen from outside, which is how its guest is
    reached. Files are written through to the host, so that a copy of the disk has them.
    """
    flags = _runsc_flags(program)
    return (
        "--network=none",
        "--host-uds=create",
        "--file-access=shared",
        "--platform=systrap",
        *(["--overlay2=none"] if "-overlay2" in flags else []),
        *(["--cpu-num-from-quota"] if "-cpu-num-from-quota" in flags else []),
    )


@cache
def _runsc_flags(program: str) -> str:
    known = subprocess.run([program, "flags"], capture_output=True, text=True, check=False)
    return known.stdout + known.stderr


def outdated(runtime: "Runtime") -> str:
    """Why a runtime that is installed is not used; empty when it is."""
    if runtime.name == "runsc" and "systrap" not in _runsc_flags(runtime.program):
        return f"{runtime.version} has no systrap platform, and with ptrace it is not reliable"
    return ""


@cache
def installed() -> dict[str, Runtime]:
    """Runtimes on this host by name, best first."""
    found = {}
    for name in PREFERENCE:
        path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
        if program := shutil.which(name, path=path):
            output = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=False
            ).stdout
            found[name] = Runtime(name, program, output.splitlines()[0] if output else "unknown")
    return found


def choose(*wishes: str) -> Runtime:
    """The first wish that was made, or else the best runtime there is."""
    known = installed()
    for wish in wishes:
        if not wish:
            continue
        if wish in known:
            if why := outdated(known[wish]):
                raise Unavailable(why, remediation=f"install a newer {wish}, or choose another")
            return known[wish]
        if wish not in PREFERENCE:
            raise InvalidRequest(
                f"there is no runtime called {wish!r}",
                remediation=f"choose one of: {', '.join(PREFERENCE)}",
            )
        raise Unavailable(
            f"the runtime {wish} is not installed",
            remediation=f"install it (`apt-get install {wish}`), or choose: {_names(known)}",
        )
    if all(outdated(found) for found in known.values()):
        raise Unavailable(
            "no OCI runtime is installed",
            remediation="install one: `apt-get install crun` (or runc)",
        )
    return next(found for found in known.values() if not outdated(found))


def _names(known: dict[str, Runtime]) -> str:
    return ", ".join(known) or "none is installed"
