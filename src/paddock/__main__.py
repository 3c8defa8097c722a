"""The `paddock` command."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.interfaces.cli.toolbox import Toolbox

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def make_toolbox(config: Path | None, log_level: str | None) -> "Toolbox":
    """Imported late: most of what Paddock is made of is not needed to answer `--help`."""
    from paddock.wiring import toolbox

    return toolbox(config, log_level)


def main() -> int:
    # Until there is something to clean up, an interrupt ends the program as it ends others.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Users who are not root have no sbin in their PATH, and some tools are installed nowhere else.
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys([*path, *_SBIN]))
    from paddock.interfaces.cli.app import run

    return run(make_toolbox)


if __name__ == "__main__":
    sys.exit(main())
