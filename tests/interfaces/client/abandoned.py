"""Use a client and drop it without closing it, as in `python -m tests.interfaces.client.abandoned`.

A program, because it looks at all open files and warnings of its process. It prints the warnings.
"""

import asyncio
import gc
import json
import os
import sys
import warnings

from paddock import Server


def sockets() -> set[str]:
    found = (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd"))
    return {os.readlink(each) for each in found if os.path.islink(each)}


async def main(url: str, token: str) -> None:
    before = sockets()
    server = Server(url, token)
    await server.call("GET", "/v1/sandboxes")
    server.itself = server  # such as an error's traceback does it
    opened = {each for each in sockets() - before if each.startswith("socket:")}
    assert opened
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del server
        gc.collect()
        async with asyncio.timeout(10):
            while sockets() & opened:
                await asyncio.sleep(0.01)
        gc.collect()
    print(json.dumps([str(each.message) for each in said]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
