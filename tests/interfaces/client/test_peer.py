"""Issue: the admin token sent to any listener. It goes only to a server of the account that wrote
it."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager

import pytest

from paddock import Server, Unauthenticated
from paddock.interfaces.client import peer
from tests.harness.ports import free_port

_NOBODY = 65534
_LISTEN = """
import os, socket, sys
os.setuid(int(sys.argv[5]))  # here, because others may not run a Python in root's home
with socket.create_server((sys.argv[1], int(sys.argv[2])), family=int(sys.argv[3])) as listener:
    print("ready", flush=True)
    if sys.argv[4] == "late":
        sys.stdin.readline()
    connection, _ = listener.accept()
    print("accepted", flush=True)
    said = b""
    while piece := connection.recv(65536):
        said += piece
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
    print(said.decode("latin-1"), flush=True)
"""


@contextmanager
def impostor(host="127.0.0.1", *, when="soon", uid=_NOBODY):
    """A program of another account that listens on the loopback and notes what it is sent."""
    port, family = free_port(), 10 if ":" in host else 2
    with subprocess.Popen(
        [sys._base_executable, "-ISc", _LISTEN, host, str(port), str(family), when, str(uid)],
        cwd="/",
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield port, process
        finally:
            process.kill()


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data directory as a server of this account leaves it."""
    (tmp_path / "admin-token").write_text("tok_admin\n")
    monkeypatch.setenv("PADDOCK_SERVER__DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PADDOCK_TOKEN", "PADDOCK_URL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_listener_of_another_account_gets_no_token(as_root, data, host):
    with impostor(host) as (port, process):
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        async with Server(url) as server:
            with pytest.raises(Unauthenticated, match=f"uid {_NOBODY}") as refused:
                await server.call("GET", "/v1/version")
            assert "PADDOCK_TOKEN" in refused.value.remediation
            assert "tok_admin" not in str(refused.value)
        assert process.stdout.readline() == "accepted\n"
        assert process.stdout.read() == "\n", "not a byte was sent"


async def test_a_token_that_was_given_goes_where_it_is_told(as_root, data):
    with impostor() as (port, process):
        async with Server(f"http://127.0.0.1:{port}", "tok_given") as server:
            assert await server.call("GET", "/v1/version") == {}
        assert process.stdout.readline() == "accepted\n"
        assert "tok_given" in process.stdout.read()


async def test_the_server_that_wrote_the_token_is_sent_it(running, monkeypatch):
    monkeypatch.setenv("PADDOCK_SERVER__DATA_DIR", str(running.plane.place / "data"))
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.delenv("PADDOCK_TOKEN", raising=False)
    for host in ("127.0.0.1", "localhost"):
        port = running.url.rpartition(":")[2]
        async with Server(f"http://{host}:{port}") as server:
            for _ in range(2):
                assert "items" in await server.call("GET", "/v1/sandboxes")


async def test_a_connection_that_nobody_has_accepted_says_nothing_of_its_owner(as_root):
    """Until then the kernel shows uid 0 for it, whoever listens."""
    with impostor(when="late") as (port, process):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        there, here = (writer.get_extra_info(name) for name in ("peername", "sockname"))
        assert await peer._accepted_by(there, here, within_s=0.05) is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert await peer._accepted_by(there, here) == _NOBODY
        writer.close()
        await writer.wait_closed()
        del reader
