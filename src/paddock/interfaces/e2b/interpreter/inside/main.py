"""Started with a language it is that language's kernel, and without one the server."""

from __future__ import annotations

import asyncio
import sys


def main() -> None:
    if len(sys.argv) > 1:
        from ipykernel.kernelapp import IPKernelApp

        from .piped import KERNELS

        language = sys.argv[1]
        del sys.argv[1]
        IPKernelApp.launch_instance(kernel_class=KERNELS[language])
        return
    from .server import serve

    asyncio.run(serve())
