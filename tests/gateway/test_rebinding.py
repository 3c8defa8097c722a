"""A name server that answers differently each time changes nothing about what was checked."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

# In a network and with a resolver of its own. Every second answer is loopback, where somebody
# listens who should never be spoken to; the others are an address that a rule opens.
_WORLD = r"""
import asyncio, dataclasses, itertools, json, os, subprocess, sys
run = lambda *argv: subprocess.run(argv, check=True)
run("ip", "link", "set", "lo", "up")
run("ip", "address", "add", "192.0.2.7/32", "dev", "lo")
with open(sys.argv[1], "w") as resolver:
    resolver.write("nameserver 127.0.0.1\noptions attempts:1 timeout:2\n")
run("mount", "--bind", sys.argv[1], "/etc/resolv.conf")

from paddock.domain.egress.rule import parse
from paddock.gateway import outside

outside._FRESH_S = float(sys.argv[2])
GOOD, BAD = bytes([192, 0, 2, 7]), bytes([127, 0, 0, 1])

class NameServer(asyncio.DatagramProtocol):
    answers = itertools.cycle([GOOD, BAD])
    asked = 0
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, peer):
        end = data.index(0, 12) + 5
        kind = int.from_bytes(data[end - 4 : end - 2], "big")
        head = data[:2] + b"\x81\x80\0\1" + (b"\0\1" if kind == 1 else b"\0\0") + bytes(4)
        answer = b""
        if kind == 1:
            NameServer.asked += 1
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + next(self.answers)
        self.transport.sendto(head + data[12:end] + answer, peer)

async def main():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 53))
    met = []
    async def meet(_reader, writer):
        met.append(writer.get_extra_info("sockname")[0])
        writer.close()
    await asyncio.start_server(meet, "0.0.0.0", 8080)
    opened = dataclasses.replace(parse("192.0.2.7/32:*"), by_operator=True)
    rules = [parse("rebind.example:*"), opened]
    world, told = outside.Outside(), []
    for _ in range(20):
        try:
            transport, address = await world.dial(rules, ("rebind.example", 8080), asyncio.Protocol)
            transport.close()
            told.append(address)
        except outside.Closed as error:
            told.append("closed")
    await asyncio.sleep(0.1)
    print(json.dumps({"met": met, "told": told, "asked": NameServer.asked}))

asyncio.run(main())
"""


def dialled(tmp_path: Any, fresh_s: float) -> dict[str, Any]:
    command = ["unshare", "--net", "--mount", sys.executable, "-c", _WORLD]
    done = subprocess.run(
        [*command, str(tmp_path / "resolv.conf"), str(fresh_s)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.proves("P16")
def test_what_is_connected_to_is_what_was_checked(tmp_path, need):
    if os.geteuid() != 0:
        need("root", "only root can give a program a resolver of its own")
    found = dialled(tmp_path, 0.0)
    assert found["told"] == ["192.0.2.7", "closed"] * 10
    assert found["met"] == ["192.0.2.7"] * 10
    assert found["asked"] == 20, "once for every connection, and never again to connect"


def test_an_answer_is_kept_for_a_moment(tmp_path, need):
    if os.geteuid() != 0:
        need("root", "only root can give a program a resolver of its own")
    found = dialled(tmp_path, 5.0)
    assert found["told"] == ["192.0.2.7"] * 20
    assert found["asked"] == 1
