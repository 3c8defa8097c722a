"""ID ranges on this host: each running sandbox has its own.

So the kernel counts per-user resources (pipes, in-flight descriptors, inotify, message queues)
separately for each sandbox.
"""

import fcntl
import zlib
from dataclasses import dataclass
from pathlib import Path

from paddock.domain.errors import QuotaExceeded

FIRST = 0x78000000
"""Above the IDs that systemd and SSSD assign, and below 2^31, where signed IDs turn negative."""
SIZE = 0x10000
COUNT = 2046
"""The two ranges above these are reserved for jails (`host.jail`)."""


@dataclass(frozen=True, slots=True)
class IdRanges:
    """The ranges of the whole host. A symbolic link, named after a range's number, reserves it as
    long as the file that it points to exists."""

    directory: Path
    count: int = COUNT

    def take(self, holder: Path) -> int:
        """Create the file `holder` and reserve a range until it is removed. Return the range's
        first ID.

        A name must not be used twice: links that an earlier start left would hold again.
        """
        with (self.directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            begin = zlib.crc32(holder.name.encode())
            for number in ((begin + step) % self.count for step in range(self.count)):
                link = self.directory / str(number)
                if not link.exists():  # no link, or a dangling one
                    link.unlink(missing_ok=True)
                    link.symlink_to(holder)
                    holder.touch(exist_ok=False)
                    return FIRST + number * SIZE
        raise QuotaExceeded(
            f"all {self.count} ID ranges of this host are in use by sandboxes",
            remediation="stop or destroy sandboxes that are no longer needed",
        )
