"""Rules of the kernel's packet filter, set through libnftables: the program takes 35 times as long.

Whatever is set is set in the network namespace of the calling thread.
"""

import ctypes
import ctypes.util
import os
import subprocess
from functools import cache

from paddock.domain.errors import Broken, Unavailable

_SONAME = "libnftables.so.1"
_MOST_FILES = 768
"""libnftables waits by select(2), which aborts the process for a descriptor from 1024 on. Others
may be opened between the count and its own."""
_PROGRAM_S = 20


def available() -> bool:
    try:
        _library()
    except Unavailable:
        return False
    return True


def apply(commands: str) -> None:
    """All of it or nothing, as with `nft -f`."""
    if len(os.listdir("/proc/self/fd")) > _MOST_FILES:  # noqa: PTH208 - counts the fastest
        _apply_by_program(commands)
        return
    library = _library()
    context = library.nft_ctx_new(0)
    if not context:
        raise Broken("libnftables could not be begun with")
    try:
        library.nft_ctx_buffer_output(context)
        library.nft_ctx_buffer_error(context)
        if library.nft_run_cmd_from_buffer(context, commands.encode()) != 0:
            said = (library.nft_ctx_get_error_buffer(context) or b"").decode(errors="replace")
            raise Broken(f"the packet filter refused its rules: {said.strip()}")
    finally:
        library.nft_ctx_free(context)


def _apply_by_program(commands: str) -> None:
    """In a process of its own, which has few files open and the thread's network."""
    try:
        done = subprocess.run(
            ["nft", "-f", "-"],
            input=commands.encode(),
            capture_output=True,
            timeout=_PROGRAM_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Broken(f"nft could not set the rules of the packet filter: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Broken(f"the packet filter refused its rules: {said}")


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_SONAME)
    except OSError as error:
        raise Unavailable(
            f"{_SONAME} is not installed, and an allowlist needs it",
            remediation="`apt-get install libnftables1`",
        ) from error
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_free.argtypes = [ctypes.c_void_p]
    library.nft_ctx_buffer_output.argtypes = [ctypes.c_void_p]
    library.nft_ctx_buffer_error.argtypes = [ctypes.c_void_p]
    library.nft_ctx_get_error_buffer.argtypes = [ctypes.c_void_p]
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library
