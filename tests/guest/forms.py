"""The forms a guest comes in, each started in a throw-away root file system and ended with it."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Protocol, Self

from paddock.domain.errors import PaddockError
from paddock.domain.guest import GuestAddress
from paddock.guest import pack
from paddock.guest_client import Guest

TOKEN = "a-token-for-tests"
SANDBOX_ID = "sbx_test"

# PID 1 of the sandbox: makes the root, then starts and kills guests as it is told.
_INIT = r"""
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$ROOTFS,upperdir=$BASE/upper,workdir=$BASE/work" "$BASE/root"
cd "$BASE/root"
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs dev
mkdir -p dev/pts dev/shm run/paddock
chmod 1777 dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr
for device in null zero full random urandom tty; do
  touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"
done
mount --bind "$BASE/run" run/paddock
mkdir run/small
mount -t tmpfs -o size=1m,mode=777 tmpfs run/small
if [ -n "$CGROUP" ]; then
  mkdir -p sys/fs/cgroup/memory
  echo 0 > "$CGROUP/cgroup.procs"
  mount --bind "$CGROUP" sys/fs/cgroup/memory
fi
set +e
exec 3>&1 >/dev/null
echo ready >&3
while read -r verb rest; do
  case "$verb" in
    start)
      chroot . /usr/bin/env -i /usr/bin/python3 -I -S /run/paddock/guest.zip $rest \
        2>>"$BASE/run/stderr" </dev/null &
      pid=$!
      echo "$pid" >&3
      ;;
    kill) kill -9 "$pid"; wait "$pid" 2>/dev/null; echo killed >&3 ;;
    term) kill -15 "$pid"; wait "$pid" 2>/dev/null; echo ended >&3 ;;
  esac
done
"""


class GuestForm(Protocol):
    """A sandbox with a guest that can be started, killed and started again."""

    address: GuestAddress
    inner_pid: int
    """The guest's pid as the sandbox sees it."""
    state_dir: str
    token: str

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
    async def start(self, *, sandbox_id: str = SANDBOX_ID) -> None: ...
    async def kill(self) -> None: ...
    async def stop(self) -> None: ...
    def host_pid(self) -> int: ...


class PackedGuest:
    """The zip file, run by the image's own Python in private mount and pid namespaces."""

    state_dir = "/var/lib/paddock"
    token = TOKEN

    def __init__(
        self,
        rootfs: Path,
        *,
        port: int = 0,
        cgroup: str = "",
        state_dir: str = "/var/lib/paddock",
    ) -> None:
        self._rootfs = rootfs
        self._state_dir = state_dir
        self._port = port
        self._cgroup = cgroup
        self.base = Path(tempfile.mkdtemp(prefix="paddock-guest-", dir="/var/tmp"))
        self._init: asyncio.subprocess.Process | None = None
        self.inner_pid = 0
        if port:
            self.address = GuestAddress(url=f"http://127.0.0.1:{port}", token=TOKEN)
        else:
            self.address = GuestAddress(socket=str(self.base / "run/guest.sock"))

    @property
    def stderr(self) -> str:
        return (self.base / "run/stderr").read_text(errors="replace")

    async def __aenter__(self) -> Self:
        for name in ("upper", "work", "root", "run"):
            (self.base / name).mkdir(mode=0o755)
        self.base.chmod(0o755)
        pack.build(str(self.base / "run/guest.zip"), compiled=sys.version_info[:2] == (3, 11))
        (self.base / "run/token").write_text(TOKEN)
        (self.base / "run/stderr").touch()
        env = {
            **os.environ,
            "BASE": str(self.base),
            "ROOTFS": str(self._rootfs),
            "CGROUP": self._cgroup,
        }
        self._init = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _INIT),
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert await self._line() == "ready"
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._init is not None:
            if self._init.stdin is not None:
                self._init.stdin.close()
            if self._init.returncode is None:
                self._init.send_signal(signal.SIGKILL)
            await self._init.wait()
            transport = self._init._transport  # type: ignore[attr-defined]
            transport.close()
        for _ in range(50):
            shutil.rmtree(self.base, ignore_errors=True)
            if not self.base.exists():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{self.base} could not be removed")

    async def start(self, *, sandbox_id: str = SANDBOX_ID) -> None:
        where = (
            f"--listen 127.0.0.1:{self._port}" if self._port else "--socket /run/paddock/guest.sock"
        )
        options = f"--sandbox-id {sandbox_id} --state-dir {self._state_dir}"
        options += " --token-file /run/paddock/token"
        self.inner_pid = int(await self._say(f"start {where} {options}"))
        await self._wait_until_it_answers()

    async def kill(self) -> None:
        assert await self._say("kill") == "killed"

    async def stop(self) -> None:
        assert await self._say("term") == "ended"

    def host_pid(self) -> int:
        """The guest's pid as this process sees it."""
        assert self._init is not None
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
                parent = int(lines["PPid"])
                inner = lines["NSpid"].split()
            except (OSError, ValueError, KeyError):
                continue
            if len(inner) == 2 and int(inner[1]) == self.inner_pid and self._is_ours(parent):
                return int(inner[0])
        raise AssertionError("the guest does not run")

    def _is_ours(self, pid: int) -> bool:
        assert self._init is not None
        while pid > 1:
            if pid == self._init.pid:
                return True
            stat = Path(f"/proc/{pid}/stat").read_text()
            pid = int(stat.rpartition(")")[2].split()[1])
        return False

    async def _say(self, line: str) -> str:
        assert self._init is not None
        assert self._init.stdin is not None
        self._init.stdin.write(line.encode() + b"\n")
        return await self._line()

    async def _line(self) -> str:
        assert self._init is not None
        assert self._init.stdout is not None
        async with asyncio.timeout(10):
            line = (await self._init.stdout.readline()).decode().strip()
        if not line:
            raise AssertionError(f"the sandbox did not come up:\n{self.stderr}")
        return line

    async def _wait_until_it_answers(self) -> None:
        async with Guest(self.address) as guest:
            for _ in range(500):
                try:
                    await guest.health()
                except PaddockError:
                    await asyncio.sleep(0.01)
                else:
                    return
        raise AssertionError(f"the guest does not answer:\n{self.stderr}")
