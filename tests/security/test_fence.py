"""What a program inside a sandbox cannot do, tried for real on every provider with isolation."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.domain.errors import PaddockError
from paddock.domain.reason import Reason
from paddock.domain.sandbox import Resources
from paddock.guest_client import Guest
from paddock.ports.provider import Provider, Ref, SandboxSpec
from tests.conftest import Need
from tests.security.conftest import Fenced

pytestmark = [pytest.mark.timeout(120)]


@asynccontextmanager
async def sandbox(fenced: Fenced, **changes: object) -> AsyncIterator[tuple[Ref, Guest]]:
    provider: Provider = fenced.provider
    spec = SandboxSpec(template=fenced.template, **changes)  # type: ignore[arg-type]
    seen = await provider.create(f"fence-{os.urandom(8).hex()}", spec)
    try:
        async with Guest(await provider.guest(seen.ref)) as guest:
            yield seen.ref, guest
    finally:
        await provider.destroy(seen.ref)


async def python(guest: Guest, program: str, user: str = "root", timeout: float = 20) -> str:
    """What the program printed; its failure is part of the answer."""
    result = await guest.exec(["python3", "-c", program], user=user, timeout=timeout)
    return (result.stdout + result.stderr).decode(errors="replace").strip()


@pytest.mark.proves("P10")
async def test_files_of_the_host_cannot_be_read(
    fenced: Fenced, harmless: Guest, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("host secret")
    os.chmod(tmp_path, 0o755)
    for path in (str(canary), f"/proc/1/root{canary}", f"/proc/self/root/../..{canary}"):
        for user in ("user", "root"):
            result = await harmless.exec(["cat", path], user=user)
            assert result.exit_code != 0
            assert b"host secret" not in result.stdout
    found = await harmless.exec(["find", "/", "-xdev", "-name", canary.name], user="root")
    assert found.stdout == b""


@pytest.mark.proves("P10")
async def test_paddocks_own_data_and_other_sandboxes_are_out_of_reach(fenced: Fenced) -> None:
    async with sandbox(fenced) as (_, other), sandbox(fenced) as (_, guest):
        await other.files.write("/home/user/theirs.txt", b"another tenant")
        result = await guest.exec(
            ["grep", "-rl", "another tenant", "/home", "/root", "/run", "/tmp", "/var"], user="root"
        )
        assert result.stdout == b""
        for directory in fenced.data_directories:
            assert (await guest.exec(["ls", str(directory)], user="root")).exit_code != 0


@pytest.mark.proves("P10")
async def test_processes_of_the_host_and_of_neighbours_are_not_seen(fenced: Fenced) -> None:
    async with sandbox(fenced) as (_, other), sandbox(fenced) as (_, guest):
        await other.runs.start("marker", ["sleep", "4242"])
        seen = await python(
            guest,
            "import os\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: line = open(f'/proc/{pid}/cmdline').read().replace(chr(0), ' ')\n"
            "    except OSError: continue\n"
            "    print(pid, line.split(chr(10))[0])\n",
        )
        assert "4242" not in seen
        assert len(seen.splitlines()) <= 5
        assert str(os.getpid()) not in [line.split()[0] for line in seen.splitlines()]


@pytest.fixture(scope="module")
async def harmless(fenced: Fenced) -> AsyncIterator[Guest]:
    """One sandbox for all tests that only look, or try what is refused."""
    async with sandbox(fenced) as (_, guest):
        yield guest


REFUSALS = (errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.EAFNOSUPPORT)


@pytest.mark.proves("P10")
@pytest.mark.parametrize(
    ("what", "program"),
    [
        (
            "mount",
            "import ctypes; l = ctypes.CDLL(None, use_errno=True);"
            "print(l.mount(b'none', b'/mnt', b'tmpfs', 0, None), ctypes.get_errno())",
        ),
        (
            "unmount",
            "import ctypes; l = ctypes.CDLL(None, use_errno=True);"
            "print(l.umount2(b'/proc', 2), ctypes.get_errno())",
        ),
        (
            "load a module",
            "import ctypes; l = ctypes.CDLL(None, use_errno=True);"
            "print(l.syscall(175, b'x', 1, b''), ctypes.get_errno())",
        ),
        (
            "enter a new user namespace",
            "import ctypes; l = ctypes.CDLL(None, use_errno=True);"
            "print(l.unshare(0x10000000), ctypes.get_errno())",
        ),
        (
            "set the clock",
            "import time\n"
            "try: time.clock_settime(time.CLOCK_REALTIME, 0); print(0, 0)\n"
            "except OSError as e: print(-1, e.errno)",
        ),
        (
            "set the host name",
            "import socket\n"
            "try: socket.sethostname('x'); print(0, 0)\n"
            "except OSError as e: print(-1, e.errno)",
        ),
        (
            "load a bpf program",
            "import ctypes; l = ctypes.CDLL(None, use_errno=True);"
            "print(l.syscall(321, 0, b'', 0), ctypes.get_errno())",
        ),
        (
            "open a socket to the hypervisor",
            "import ctypes; l = ctypes.CDLL(None, use_errno=True);"
            "print(l.syscall(41, ctypes.c_long(40 | 1 << 32), 1, 0), ctypes.get_errno())",
        ),
        (
            "reboot",
            "import ctypes; l = ctypes.CDLL(None, use_errno=True);"
            "print(l.syscall(169, 0xfee1dead, 672274793, 0, None), ctypes.get_errno())",
        ),
    ],
)
@pytest.mark.parametrize("user", ["user", "root"])
async def test_the_kernel_refuses_to(
    fenced: Fenced, harmless: Guest, what: str, program: str, user: str
) -> None:
    answer = await python(harmless, program, user)
    if fenced.has_own_kernel and what == "enter a new user namespace":
        return  # it is a namespace of gVisor's, and gives rights to nothing else
    refused = [["-1", str(number)] for number in REFUSALS]
    assert answer.split()[:2] in refused, (what, answer)


@pytest.mark.proves("P10")
async def test_devices_cannot_be_made_or_used(fenced: Fenced, harmless: Guest) -> None:
    result = await harmless.exec(
        ["sh", "-c", "mknod /tmp/disk b 7 0 && dd if=/tmp/disk of=/dev/null count=1"],
        user="root",
    )
    assert result.exit_code != 0
    present = await python(harmless, "import os; print(sorted(os.listdir('/dev')))")
    # gVisor's own kernel has these two always: neither is the host's.
    own = ("fuse", "net") if fenced.has_own_kernel else ()
    for device in {"sda", "vda", "kmsg", "mem", "kvm", "loop0", "fuse", "net"} - {*own}:
        assert f"'{device}'" not in present


DEVICES = ("full", "null", "random", "tty", "urandom", "zero")


async def test_no_device_of_the_host_belongs_to_a_sandbox(fenced: Fenced) -> None:
    """A sandbox sees some of the host's own device nodes. Its root must not change them."""
    program = (
        "import os\n"
        f"for name in {DEVICES}:\n"
        "    seen = os.stat(f'/dev/{name}')\n"
        "    try: os.chmod(f'/dev/{name}', seen.st_mode & 0o777); changed = 'changed'\n"
        "    except OSError: changed = 'refused'\n"
        "    print(name, seen.st_dev, seen.st_ino, changed)\n"
    )
    for name in DEVICES:
        os.chown(f"/dev/{name}", 0, -1)  # earlier versions gave /dev/null away
    async with sandbox(fenced) as (_, guest):
        result = await guest.exec(["python3", "-c", program], user="root")
        assert result.exit_code == 0, result.stderr
    for line in result.text.splitlines():
        name, *place, changed = line.split()
        host = os.stat(f"/dev/{name}")
        if place == [str(host.st_dev), str(host.st_ino)]:
            assert changed == "refused", name
        assert host.st_uid == 0, name


GUEST_PID = (
    "import os\n"
    "def guest():\n"
    "    if b'python' in open('/proc/1/cmdline', 'rb').read():\n"
    "        return 1\n"  # packed
    "    for pid in sorted(int(p) for p in os.listdir('/proc') if p.isdigit()):\n"
    "        if pid not in (1, os.getpid()):\n"
    "            return pid\n"
)


@pytest.mark.proves("P10")
async def test_no_process_can_trace_or_read_the_guest(fenced: Fenced, harmless: Guest) -> None:
    program = GUEST_PID + (
        "import ctypes\n"
        "pid = guest()\n"
        "l = ctypes.CDLL(None, use_errno=True)\n"
        "print('ptrace', l.ptrace(16, pid, 0, 0), ctypes.get_errno())\n"
        "for name in ('mem', 'maps', 'environ'):\n"
        "    try: open(f'/proc/{pid}/{name}', 'rb').read(1); print('READ', name)\n"
        "    except OSError as e: print(name, 'refused')\n"
        "for name in ('exe', 'cwd', 'root'):\n"
        "    try: print('READ', name, os.readlink(f'/proc/{pid}/{name}'))\n"
        "    except OSError as e: print(name, 'refused')\n"
        "for number in range(20):\n"
        "    try: print('READ fd', os.readlink(f'/proc/{pid}/fd/{number}'))\n"
        "    except OSError: print('fd refused')\n"
    )
    # gVisor shows these of every process; the environment holds nothing, and what files are open
    # is not to have them.
    shown = {"maps", "environ", "fd"} if fenced.has_own_kernel else set()
    for user in ("user", "root"):
        answer = await python(harmless, program, user)
        read = {line.split()[1] for line in answer.splitlines() if line.startswith("READ")}
        assert read <= shown, (user, answer)
        assert "ptrace -1" in answer, (user, answer)


async def test_what_a_command_of_root_says_is_for_root_alone(fenced: Fenced) -> None:
    """Neither by way of the guest's open files nor of the command's own."""
    program = (
        "import os\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    if pid == str(os.getpid()): continue\n"
        "    for number in range(64):\n"
        "        try: file = os.open(f'/proc/{pid}/fd/{number}', os.O_RDONLY | os.O_NONBLOCK)\n"
        "        except OSError: continue\n"
        "        try: print(os.read(file, 100))\n"
        "        except OSError: pass\n"
    )
    async with sandbox(fenced) as (_, guest):
        await guest.runs.start("root", ["sh", "-c", "echo secret; sleep 30"], user="root")
        said = ["sh", "-c", "read line; echo $line; sleep 30"]
        async with asyncio.TaskGroup() as group:
            typed = guest.exec(said, user="root", stdin=b"secret\n", timeout=2)
            task = group.create_task(typed)
            for _ in range(5):
                assert "secret" not in await python(guest, program, "user")
            assert (await task).stdout == b"secret\n"


@pytest.mark.proves("P10")
async def test_a_process_of_the_user_cannot_signal_the_guest(fenced: Fenced) -> None:
    program = GUEST_PID + (
        "import signal\n"
        "for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):\n"
        "    try: os.kill(guest(), number); print('SENT', number)\n"
        "    except PermissionError: print('refused')\n"
    )
    async with sandbox(fenced) as (_, guest):
        assert "SENT" not in await python(guest, program, "user")
        await guest.exec(["sh", "-c", "kill -9 -1"], user="user")
        assert (await guest.exec(["echo", "alive"])).stdout == b"alive\n"


@pytest.mark.proves("P16")
async def test_a_closed_sandbox_reaches_no_service_of_the_host(
    fenced: Fenced, harmless: Guest
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        addresses = {"127.0.0.1", *fenced.host_addresses()}
        for address in addresses:
            answer = await python(
                harmless,
                "import socket\n"
                f"try: socket.create_connection(({address!r}, {port}), 2); print('REACHED')\n"
                "except OSError as e: print('refused', e)",
            )
            assert "REACHED" not in answer, address
        # The listener itself works: only the fence keeps it out of reach.
        socket.create_connection(("127.0.0.1", port), 2).close()


@pytest.mark.proves("P16")
async def test_a_closed_sandbox_does_not_reach_the_metadata_address(
    fenced: Fenced, harmless: Guest
) -> None:
    answer = await python(
        harmless,
        "import socket\n"
        "try: socket.create_connection(('169.254.169.254', 80), 2); print('REACHED')\n"
        "except OSError as e: print('refused', e)",
    )
    assert "REACHED" not in answer


@pytest.mark.proves("P13", "P10")
async def test_a_fork_bomb_hurts_only_its_own_sandbox(fenced: Fenced) -> None:
    async with sandbox(fenced) as (_, bystander):
        async with sandbox(fenced, resources=Resources(pids=64)) as (_, guest):
            bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
            result = await guest.exec(["python3", "-c", bomb], timeout=3)
            assert result.exit_code == 124
            assert result.reason is Reason.DEADLINE
            start = time.monotonic()
            assert (await guest.exec(["echo", "alive"], timeout=10)).stdout == b"alive\n"
            assert time.monotonic() - start < 10
            left = await guest.exec(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"], user="root")
            assert int(left.stdout) < 10
        assert (await bystander.exec(["echo", "unharmed"])).stdout == b"unharmed\n"


@pytest.mark.proves("E10", "P13", "P10")
async def test_a_memory_bomb_ends_with_its_reason(fenced: Fenced) -> None:
    async with sandbox(fenced, resources=Resources(memory_mib=128)) as (_, guest):
        bomb = "x = []\nwhile True: x.append(bytearray(1 << 20))"
        result = await guest.exec(["python3", "-c", bomb], timeout=30)
        assert result.exit_code == 137
        assert result.reason is Reason.OOM
        assert (await guest.exec(["echo", "alive"], timeout=10)).stdout == b"alive\n"


@pytest.mark.proves("P13", "P10")
async def test_a_disk_filler_ends_with_its_reason(fenced: Fenced, need: Need) -> None:
    if not fenced.provider.capabilities.disk_limit:
        need("a disk limit", f"the storage of the {fenced.provider.name} provider here has none")
    async with sandbox(fenced, resources=Resources(disk_mib=64)) as (ref, guest):
        filler = "dd if=/dev/urandom of=/home/user/filler bs=1M count=300"
        result = await guest.exec(["sh", "-c", filler], timeout=60)
        assert result.exit_code != 0
        assert result.reason is Reason.DISK_FULL
        usage = await fenced.provider.usage(ref)
        assert usage.disk_bytes is not None
        assert usage.disk_bytes <= 80 << 20
        await guest.exec(["rm", "/home/user/filler"])
        assert (await guest.exec(["sh", "-c", "echo ok > /home/user/fits"])).exit_code == 0


@pytest.mark.proves("S6")
async def test_file_requests_cannot_leave_the_root(
    fenced: Fenced, harmless: Guest, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("host secret")
    await harmless.exec(["ln", "-s", str(canary), "/home/user/link"])
    await harmless.exec(["ln", "-s", "/proc/1/root", "/home/user/outside"])
    paths = [
        f"../../../../../..{canary}",
        "/home/user/link",
        f"/home/user/outside{canary}",
        "/proc/self/maps",
        "/proc/thread-self/mem",
    ]
    # A packed guest is run by the sandbox's own Python, which is no secret there.
    for path in [*paths, *([] if fenced.has_own_kernel else ["/proc/self/exe"])]:
        try:
            content = await harmless.files.read(path)
        except PaddockError:
            continue
        pytest.fail(f"{path} was read: {content[:40]!r}")


WHOSE = (
    "import os; print(\"the image's\" if os.path.exists(os.path.realpath('/proc/self/exe')) else 1)"
)


@pytest.mark.proves("P10")
async def test_the_guests_own_program_cannot_be_run_or_copied(
    fenced: Fenced, harmless: Guest
) -> None:
    await harmless.exec(["ln", "-s", "/proc/self/exe", "/home/user/myself"])
    for path in ("/proc/self/exe", "/home/user/myself"):
        try:
            result = await harmless.exec([path, "-c", WHOSE], timeout=5)
        except PaddockError:
            continue
        assert result.stdout == (b"the image's\n" if fenced.has_own_kernel else b"")


@pytest.mark.proves("P10")
async def test_commands_hold_no_privileges(fenced: Fenced, harmless: Guest) -> None:
    status = (await harmless.exec(["cat", "/proc/self/status"])).text
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == 0
    assert int(fields["CapPrm"], 16) == 0
    # What is called inside is gVisor's kernel, and that one has a filter of its own outside.
    assert fields["Seccomp"] == ("0" if fenced.has_own_kernel else "2")
    assert fields["Uid"].split()[0] == "1000"
    dangerous = (1 << 21) | (1 << 12) | (1 << 19) | (1 << 16) | (1 << 17) | (1 << 2)
    assert int(fields["CapBnd"], 16) & dangerous == 0
    assert not (
        await harmless.exec(["sh", "-c", "ls /run/docker.sock /var/run/docker.sock"])
    ).stdout


@pytest.mark.proves("P16")
async def test_a_closed_socket_answers_nobody_from_inside(fenced: Fenced) -> None:
    """The guest's own door is outside: nothing in the sandbox listens for it."""
    async with sandbox(fenced) as (_, guest):
        assert await guest.ports() == []
        await asyncio.sleep(0)
