"""The `paddock` command."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.interfaces.cli.toolbox import Toolbox


def make_toolbox(config: Path | None, log_level: str | None) -> "Toolbox":
    """Imported late: most of what Paddock is made of is not needed to answer `--help`."""
    from paddock.wiring import toolbox

    return toolbox(config, log_level)


def main() -> int:
    # Until there is something to clean up, an interrupt ends the program as it ends others.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from paddock.interfaces.cli.app import run

    return run(make_toolbox)


if __name__ == "__main__":
    sys.exit(main())
