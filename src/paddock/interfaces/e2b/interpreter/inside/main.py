"""Started with a language it is that language's kernel, and without one the server."""

from __future__ import annotations

import asyncio
import sys


def main() -> None:
    if len(sys.argv) > 1:
        from .apps import launch

        launch(sys.argv.pop(1))
        return
    from .server import serve

    asyncio.run(serve())
