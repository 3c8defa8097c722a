"""Who can reach the API: everybody by the public port, and by its own socket the front alone."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from tests.control_plane import disposable, running

NOBODY = 65534
CONNECT = """
import os, socket, sys
user = int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except PermissionError:
    print("refused")
else:
    print("connected")
"""


@pytest.mark.proves("U3")
async def test_the_apis_own_socket_is_for_nobody_else_on_the_host(need):
    """Whoever connects there is believed about who sent the request."""
    if os.geteuid() != 0:
        need("root", "only root can become nobody")
    async with disposable() as plane:
        data = plane.place / "data"
        for directory in (plane.place, data):
            directory.chmod(0o711)  # as the local provider needs it
        (place,) = data.rglob("api.sock")

        def attempt(user):
            command = [sys.executable, "-c", CONNECT, str(place), str(user)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return done.stdout.strip()

        assert await asyncio.to_thread(attempt, NOBODY) == "refused"
        assert await asyncio.to_thread(attempt, 0) == "connected"
        assert (await plane.client("").get("/healthz")).status == 200


async def test_a_directory_that_was_left_open_is_closed_at_the_next_start(tmp_path):
    data = tmp_path / "data"
    (data / "api").mkdir(parents=True, mode=0o755)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(data / "api.sock"))
    left.close()
    async with running(tmp_path):
        assert (data / "api").stat().st_mode & 0o777 == 0o700
        assert not (data / "api.sock").exists()
