"""The control plane's end of the launcher: start it, ask it, notice when it is gone."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from paddock.adapters.providers.host.cgroups import Cgroup
from paddock.adapters.providers.host.mounts import Bind, Overlay
from paddock.adapters.providers.host.processes import Process
from paddock.adapters.providers.host.user_namespaces import Ids
from paddock.domain.errors import Broken, TimedOut, Unavailable

_PACKET = 1 << 20
_START_TIMEOUT_S = 10.0
_JOIN_TIMEOUT_S = 15.0
"""A guest takes a hundredth of a second to get in; on a host with too much to do, a few seconds."""
_SLACK_S = 10.0
"""How much longer than the launcher is waited for what the launcher gives up on by itself."""
# Every page of the launcher is one that each guest shares and each fork looks at: what nobody
# needs is not loaded. OpenSSL alone would be a tenth of it.
# Guests are forked from it, and what a process was started with stays readable in its memory:
# nothing of the control plane's own environment may be in there.
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
_BOOTSTRAP = (
    "import sys; sys.path[:0] = sys.argv.pop().split(':'); "
    "sys.modules.update(dict.fromkeys(('ssl', '_ssl', '_hashlib'))); "
    "from paddock.adapters.providers.host.launcher import main; main()"
)


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program that the launcher ran ended."""

    code: int
    output: str


@dataclass
class LaunchControl:
    """One launcher process, started when first needed and again if it should die."""

    run_dir: Path
    inherit: Sequence[int] = ()
    """Descriptors the launcher keeps open for as long as it lives, such as the owner's lock."""
    fast_cgroups: bool = True
    pool: Path | None = None
    """The mount point of its sandboxes' disks. The launcher detaches other installations' pools."""
    _process: subprocess.Popen[bytes] | None = None
    _socket: socket.socket | None = None
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: count(1))
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        overlay: Overlay | None = None,
        binds: Sequence[Bind] = (),
        ids: Ids | None = None,
    ) -> Finished:
        """Run a program in the launcher's namespace, with an overlay and `binds` mounted meanwhile,
        and a user namespace for a sandbox with these `ids`.

        One that takes longer than `timeout` is killed.
        """
        mounted: dict[str, Any] = {
            "overlay": overlay and asdict(overlay),
            "binds": [asdict(bind) for bind in binds],
            "ids": ids and asdict(ids),
        }
        answer = await self._ask("run", timeout, argv=list(argv), timeout=timeout, **mounted)
        return Finished(answer["code"], answer["output"])

    async def join(
        self,
        listener: socket.socket,
        init: Process,
        cgroup: Cgroup,
        *,
        timeout: float = _JOIN_TIMEOUT_S,
        **order: Any,
    ) -> None:
        """Fork a guest into the sandbox of that first process; it serves on `listener`.

        TimedOut when it does not get in. It may then be on its way still, in the control group, and
        ends with whatever else is in there, or at the door.
        """
        content = {
            "init": asdict(init),
            "cgroup_procs": cgroup.procs_files(),
            "accounting": cgroup.accounting_files(),
            "timeout": timeout,
        }
        try:
            await self._ask("join", timeout, carried=listener, **content, **order)
        except TimedOut as error:
            if cgroup.frozen():
                raise TimedOut(
                    f"{error.message}: its control group is frozen",
                    remediation="resume the sandbox, or thaw the group, and try again",
                ) from error
            raise

    async def aclose(self) -> None:
        self._drop(Unavailable("the launcher was closed"))
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, 15)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)

    async def _ask(
        self,
        operation: str,
        patience: float,
        *,
        carried: socket.socket | None = None,
        **content: Any,
    ) -> dict[str, Any]:
        control = await self._connected()
        number = next(self._numbers)
        packet = json.dumps({"request": number, "operation": operation, **content}).encode()
        if len(packet) > _PACKET:
            raise Broken(f"a launcher request of {len(packet)} bytes is too large")
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self._send(control, packet, [carried.fileno()] if carried else [])
            async with asyncio.timeout(patience + _SLACK_S):
                answer: dict[str, Any] = await future
        except TimeoutError as error:
            raise TimedOut(
                f"the launcher did not answer to {operation} within {patience + _SLACK_S:g} s",
                remediation=f"{self.run_dir / 'launcher.log'} may say what holds it up",
            ) from error
        finally:
            self._waiting.pop(number, None)
        if "late" in answer:
            raise TimedOut(answer["late"], remediation="try again when this host has less to do")
        if "error" in answer:
            raise Broken(f"the launcher could not {operation}: {answer['error']}")
        return answer

    async def _send(self, control: socket.socket, packet: bytes, fds: list[int]) -> None:
        for _ in range(2000):
            try:
                socket.send_fds(control, [packet], fds)
                return
            except BlockingIOError:
                await asyncio.sleep(0.002)
            except OSError as error:
                raise Unavailable(f"the launcher is gone: {error}") from error
        raise Unavailable("the launcher does not take requests")

    async def _connected(self) -> socket.socket:
        async with self._starting:
            if self._socket is None:
                await self._start()
            assert self._socket is not None
            return self._socket

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _PACKET)
        self.run_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        log = self.run_dir / "launcher.log"
        with theirs, log.open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", _BOOTSTRAP),
                    *(str(theirs.fileno()), str(self.run_dir / "mounts")),
                    "fast" if self.fast_cgroups else "plain",
                    str(self.pool.resolve()) if self.pool else "",
                    ",".join(map(str, self.inherit)),
                    ":".join(path for path in sys.path if path and Path(path).is_dir()),
                ],
                pass_fds=[theirs.fileno(), *self.inherit],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,  # an interrupt at the terminal is for the control plane
            )
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        self._waiting[0] = ready
        self._socket = ours
        loop.add_reader(ours, self._receive)
        try:
            await asyncio.wait_for(ready, _START_TIMEOUT_S)
        except (TimeoutError, Unavailable) as error:
            self._drop(Unavailable("the launcher did not start"))
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            self._process = None
            raise Unavailable(
                f"the launcher did not start: {_tail(log)}",
                remediation="it must run as root; `paddock doctor` says what is missing",
            ) from error

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            packet = self._socket.recv(_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._drop(Unavailable(f"the launcher died: {_tail(self.run_dir / 'launcher.log')}"))
            return
        answer = json.loads(packet)
        future = self._waiting.pop(answer["request"], None)
        if future is not None and not future.done():
            future.set_result(answer)

    def _drop(self, why: Unavailable) -> None:
        control, self._socket = self._socket, None
        if control is not None:
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_reader(control)
            control.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(why)


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or os.strerror(0)
    return "no log"
