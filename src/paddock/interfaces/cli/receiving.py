"""What git says of its progress while it clones, as numbers."""

import re
from dataclasses import dataclass

_NUMBER = r"(\d{1,15})"
_LINE = re.compile(
    rf"(remote: )?([A-Z][a-z]+ [a-z]+): +\d{{1,3}}% \({_NUMBER}/{_NUMBER}\)"
    r"(?:, (\d{1,9}(?:\.\d{1,3})?) (bytes?|[KMGT]iB)(?: \| [\d.]+ \w+/s)?)?(?:, done\.)?"
)
_COUNTED = re.compile(r"remote: [A-Z][a-z]+ [a-z]+: +\d+(?:, done\.)?")
_RECEIVING = ("Receiving objects", "Unpacking objects")
_AFTER = ("Resolving deltas", "Updating files", "Filtering content")
_BYTES = {"byte": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_LONGEST_LINE = 4096
_MOST_WORDS = 50


@dataclass(frozen=True, slots=True)
class Received:
    """How much of a repository has come. Sizes are None as long as git told none."""

    objects: int = 0
    all_objects: int = 0
    size_bytes: int | None = None
    sized: int = 0
    """How many objects had come when that size was told: git repeats it for a while."""

    @property
    def fraction(self) -> float | None:
        return min(1.0, self.objects / self.all_objects) if self.all_objects else None

    @property
    def whole_bytes(self) -> int | None:
        """Estimated: as if the objects to come were as large as those that came."""
        if self.size_bytes is None or not self.sized:
            return None
        return self.size_bytes * max(self.all_objects, self.sized) // self.sized


class Telling:
    """Reads what git writes to stderr, in pieces of any length; what it keeps is bounded."""

    def __init__(self) -> None:
        self.received = Received()
        self.is_here = False
        """Everything has come; what follows is work of this machine."""
        self.words: list[str] = []
        """What is not about progress: the last lines."""
        self._rest = ""

    def take(self, said: str) -> None:
        *lines, rest = re.split(r"[\r\n]", self._rest + said)
        self._rest = rest[-_LONGEST_LINE:]
        for line in lines:
            self._read(line[-_LONGEST_LINE:].strip())

    def close(self) -> None:
        """What came last may have no end of line."""
        self.take("\n")

    def _read(self, line: str) -> None:
        found = _LINE.fullmatch(line)
        if found is None:
            if line and not line.startswith("Cloning into ") and not _COUNTED.fullmatch(line):
                self.words = [*self.words, line][-_MOST_WORDS:]
            return
        remote, stage, done, whole, amount, unit = found.groups()
        if remote:
            return  # its server's preparations; whatever it calls them
        if stage in _AFTER:
            self.is_here = True
        elif stage in _RECEIVING:
            known = self.received
            size = round(float(amount) * _BYTES[unit]) if amount else known.size_bytes
            sized = known.sized if size == known.size_bytes else int(done)
            self.received = Received(int(done), int(whole), size, sized)
            self.is_here = self.received.objects >= self.received.all_objects
