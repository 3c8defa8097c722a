"""Ranges of ids on this host: each running sandbox has one of its own.

What the kernel counts by user (pipes, descriptors under way, inotify, queues) is then counted for
each sandbox apart.
"""

import fcntl
import zlib
from dataclasses import dataclass
from pathlib import Path

from paddock.domain.errors import QuotaExceeded

FIRST = 0x78000000
"""Above the ids that systemd and SSSD give away, and below those that are negative to some."""
SIZE = 0x10000
COUNT = 2046
"""The two ranges above are for jails of programs (`host.jail`)."""


@dataclass(frozen=True, slots=True)
class IdRanges:
    """Those of the whole host. A link from a range's number to a directory says that it is taken,
    for as long as the directory exists."""

    directory: Path

    def take(self, holder: Path) -> int:
        """The first id of a range that is the holder's until it is removed."""
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            begin = zlib.crc32(holder.name.encode())
            for number in ((begin + step) % COUNT for step in range(COUNT)):
                link = self.directory / str(number)
                if not link.exists():  # no link, or one to what is gone
                    link.unlink(missing_ok=True)
                    link.symlink_to(holder)
                    return FIRST + number * SIZE
        raise QuotaExceeded(
            f"all {COUNT} ranges of ids on this host are in use by sandboxes",
            remediation="stop or destroy sandboxes that are no longer needed",
        )
