"""A name server that never answers holds up nobody but who asks it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(90)

# In a network and with a resolver of its own, which is silent about some names.
_WORLD = r"""
import asyncio, json, subprocess, sys, time, uvloop
run = lambda *argv: subprocess.run(argv, check=True)
run("ip", "link", "set", "lo", "up")
with open(sys.argv[1], "w") as resolver:
    resolver.write("nameserver 127.0.0.1\noptions attempts:1 timeout:15\n")
run("mount", "--bind", sys.argv[1], "/etc/resolv.conf")

from paddock.gateway.lookups import MOST_OF_SANDBOX, Lookups, Turns

class NameServer(asyncio.DatagramProtocol):
    asked = []
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, peer):
        name = data[13:13 + data[12]].decode()
        end = data.index(0, 12) + 5
        kind = int.from_bytes(data[end - 4 : end - 2], "big")
        if kind == 1:
            self.asked.append(name)
        if name.startswith("silent"):
            return
        head = data[:2] + b"\x81\x80\0\1" + (b"\0\1" if kind == 1 else b"\0\0") + bytes(4)
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + bytes([192, 0, 2, 7]) if kind == 1 else b""
        self.transport.sendto(head + data[12:end] + answer, peer)

async def main():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 53))
    lookups, hostile, other = Lookups(), Turns(), Turns()
    silent = [
        asyncio.ensure_future(lookups.addresses_of(f"silent{n}.example", hostile))
        for n in range(40)
    ]
    # What waits behind them of the same sandbox is not in the way of others either.
    queued = asyncio.ensure_future(lookups.addresses_of("wanted.example", hostile))
    while len(NameServer.asked) < MOST_OF_SANDBOX:
        await asyncio.sleep(0.01)
    names = ["wanted.example", *(f"good{n}.example" for n in range(20))]
    found = await asyncio.gather(*(lookups.addresses_of(name, other) for name in names))
    asked = [name for name in NameServer.asked if name.startswith("silent")]
    given_up = await asyncio.gather(queued, *silent, return_exceptions=True)
    late = await lookups.addresses_of("late.example", other)
    print(json.dumps({
        "found": found + [late],
        "asked": len(asked),
        "given_up": [type(each).__name__ for each in given_up],
    }))

uvloop.run(main())
"""


@pytest.mark.slow
def test_who_asks_what_is_never_answered_waits_alone(tmp_path: Path):
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", _WORLD, str(tmp_path / "resolver")],
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["found"] == [["192.0.2.7"]] * 22
    assert told["asked"] == 4, "no more at a time for one sandbox"
    assert set(told["given_up"]) == {"TimeoutError"}
