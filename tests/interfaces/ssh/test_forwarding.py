"""`ssh -L` leads into the sandbox and nowhere else; what is not offered is refused."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import asyncssh
import pytest

from paddock.domain.quarantine import Quarantine
from tests.harness.ports import free_port
from tests.interfaces.ssh.test_sessions import connected

pytestmark = pytest.mark.timeout(90)


@asynccontextmanager
async def serving(door):
    """A web server inside, on a port of its own."""
    port = free_port()
    async with connected(door) as connection:
        script = f"cd /usr/share/doc && exec python3 -m http.server {port} --bind 127.0.0.1"
        async with connection.create_process(script) as process:
            async with asyncio.timeout(30):
                while True:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        break
                    except OSError:
                        await asyncio.sleep(0.05)
            writer.close()
            try:
                yield port
            finally:
                process.terminate()


async def test_a_port_of_the_sandbox_is_reached(door):
    local = free_port()
    async with serving(door) as port:
        tunnel = await asyncio.create_subprocess_exec(
            "ssh",
            *door.options("-N", "-oExitOnForwardFailure=yes", f"-L{local}:localhost:{port}"),
            f"{door.token}@127.0.0.1",
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with aiohttp.ClientSession() as session, asyncio.timeout(30):
                answers = await asyncio.gather(*(_fetched(session, local) for _ in range(10)))
            assert answers == [200] * 10
        finally:
            tunnel.terminate()
            await tunnel.wait()


async def _fetched(session, port):
    while True:
        try:
            async with session.get(f"http://127.0.0.1:{port}/") as answer:
                await answer.read()
                return answer.status
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("host", ["example.com", "10.0.0.1", "169.254.169.254"])
async def test_nothing_beyond_the_sandbox_is_reached(door, host):
    async with connected(door) as connection:
        with pytest.raises(asyncssh.ChannelOpenError, match="only the sandbox's own ports"):
            await connection.open_connection(host, 80)


async def test_a_port_that_nobody_listens_on_is_refused(door):
    async with connected(door) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("localhost", free_port())
        assert (await connection.run("echo still there")).stdout == "still there\n"


async def test_what_is_not_offered_is_refused(door):
    done = await door.ssh(
        "true", options=("-oExitOnForwardFailure=yes", f"-R{free_port()}:localhost:22")
    )
    assert done.code == 255
    assert "remote port forwarding failed" in done.said
    done = await door.ssh('echo "[$SSH_AUTH_SOCK$DISPLAY]"', options=("-A",))
    assert done.stdout == b"[]\n"
    async with connected(door) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/run/some.sock")
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_session(subsystem="nothing")


async def test_nobody_but_an_admin_gets_into_what_was_set_aside(door):
    member = await door.plane.member(role="member")
    made = await door.access(member, reveal=True)
    theirs = replace(door, token=made["token"])
    async with serving(door) as port, connected(theirs) as connection:
        await connection.open_connection("localhost", port)
        await mark(door)
        with pytest.raises((asyncssh.ChannelOpenError, asyncssh.DisconnectError)):
            await connection.open_connection("localhost", port)
        async with asyncio.timeout(30):
            await connection.wait_closed()
        done = await door.ssh("echo in", user=made["token"], options=("-oBatchMode=yes",))
        assert (done.code, done.stdout) == (255, b"")
        assert "set aside" in done.said
        assert (await door.ssh("echo in")).text == "in\n"


async def mark(door):
    """As it is when an admin has woken it to look inside."""
    aside = Quarantine("usr_x", 1.0, "odd")

    def write(tx):
        tx.sandboxes.replace(replace(tx.sandboxes.get("", door.box), quarantine=aside))

    await door.plane.services.store.write(write)
    door.plane.services.inside._changes.forget(door.box)
