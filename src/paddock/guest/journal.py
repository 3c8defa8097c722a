"""One stream's output on disk: an endless file by its offsets, a few segments in truth."""

from __future__ import annotations

import os

from . import disk

_LARGEST_SEGMENT = 4 << 20
_SMALLEST_SEGMENT = 4096
_SEGMENTS = 8


class Journal:
    """Bytes from `first` to `end` are there; the file names say where each segment starts.

    A hole never lies between segments: what is let go is always the oldest.
    """

    def __init__(self, directory: str, name: str, cap: int) -> None:
        self._prefix = f"{directory}/{name}."
        self._segment_size = min(_LARGEST_SEGMENT, max(_SMALLEST_SEGMENT, cap // _SEGMENTS))
        starts = (n[len(name) + 1 :] for n in disk.names(directory) if n.startswith(f"{name}."))
        self._starts = sorted(int(start) for start in starts if start.isdigit())
        self._fd = -1
        self.end = 0
        if self._starts:
            self.end = self._starts[-1] + os.stat(self._path(self._starts[-1])).st_size

    @property
    def first(self) -> int:
        return self._starts[0] if self._starts else self.end

    def append(self, data: bytes) -> int:
        """How much could be written; less than all means that the disk is full."""
        rest = memoryview(data)
        while rest:
            try:
                if self._fd < 0 or self.end - self._starts[-1] >= self._segment_size:
                    self._begin_segment()
                room = self._segment_size - (self.end - self._starts[-1])
                written = os.write(self._fd, rest[:room])
            except OSError:
                break
            self.end += written
            rest = rest[written:]
        return len(data) - len(rest)

    def read(self, offset: int, most: int) -> bytes:
        """From an offset that is there, up to the end of its segment; empty at the end."""
        if not self.first <= offset < self.end:
            return b""
        start = max(start for start in self._starts if start <= offset)
        fd = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, most, offset - start)
        finally:
            os.close(fd)

    def release(self, upto: int) -> None:
        """Let go of segments that lie wholly before an offset."""
        while len(self._starts) > 1 and self._starts[1] <= upto:
            os.unlink(self._path(self._starts.pop(0)))

    def shrink(self, cap: int) -> None:
        """Let go of the oldest segments until no more than `cap` bytes are there."""
        while len(self._starts) > 1 and self.end - self.first > cap:
            self.release(self._starts[1])

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin_segment(self) -> None:
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path(self.end), flags, 0o600)
        if not self._starts or self._starts[-1] != self.end:
            self._starts.append(self.end)

    def _path(self, start: int) -> str:
        return f"{self._prefix}{start:020d}"
