"""What names mean outside, asked without letting one sandbox's questions hold up another's.

The system's resolver blocks, for half a minute where a name server never answers. So every question
has a thread of its own, and a sandbox has so many of them at a time, counted until they end and not
until somebody has stopped waiting.
"""

import asyncio
import socket
import threading
from contextlib import suppress

MOST_OF_SANDBOX = 4
_MOST_IN_ALL = 256
_WAIT_S = 10.0


class Turns(asyncio.Semaphore):
    """Of one sandbox: how many names it may have looked up at the same time."""

    def __init__(self) -> None:
        super().__init__(MOST_OF_SANDBOX)


class Lookups:
    """Those of all sandboxes. Who asks for a name that is being looked up hears the same answer."""

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(_MOST_IN_ALL)
        self._under_way: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses_of(self, host: str, turns: asyncio.Semaphore) -> list[str]:
        """OSError when it has none, TimeoutError when that is not known in time."""
        async with asyncio.timeout(_WAIT_S):
            # Only what has begun is shared: what waits for its turn, waits for its sandbox's.
            if host not in self._under_way:
                await turns.acquire()
                try:
                    await self._threads.acquire()
                except asyncio.CancelledError:
                    turns.release()
                    raise
                if host in self._under_way:
                    self._release(turns)
                else:
                    self._begin(host, turns)
            return await asyncio.shield(self._under_way[host])

    def _begin(self, host: str, turns: asyncio.Semaphore) -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()
        self._under_way[host] = answer

        def ended(found: list[str] | OSError) -> None:
            del self._under_way[host]
            self._release(turns)
            if isinstance(found, list):
                answer.set_result(found)
            else:
                answer.set_exception(found)
                answer.exception()  # whoever asked may be gone

        def ask() -> None:
            found = _asked(host)
            with suppress(RuntimeError):  # the gateway has ended meanwhile
                loop.call_soon_threadsafe(ended, found)

        # Of no pool: those are waited for when the process ends.
        threading.Thread(target=ask, name=f"look up {host}", daemon=True).start()

    def _release(self, turns: asyncio.Semaphore) -> None:
        self._threads.release()
        turns.release()


def _asked(host: str) -> list[str] | OSError:
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError as error:
        return OSError(str(error))
    return list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in infos))
