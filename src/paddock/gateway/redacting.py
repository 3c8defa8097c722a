"""Values taken out of what a server answers, as it streams by."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

from ahocorasick_rs import BytesAhoCorasick

_HEAD = 16
"""By so much of its beginning a value is looked for; only what fits is compared whole. So neither
the time to get ready nor that of a look depends on how long values are."""


class Matcher:
    """Where any of many values is, ready to be used for all answers that a sandbox gets."""

    def __init__(self, needles: Mapping[bytes, bytes]) -> None:
        self.shown = dict(needles)
        by_head: dict[bytes, list[bytes]] = defaultdict(list)
        for needle in sorted(needles, key=len, reverse=True):
            by_head[needle[:_HEAD]].append(needle)
        self._heads = sorted(by_head)
        self._with_head = [by_head[head] for head in self._heads]
        self._found = BytesAhoCorasick(self._heads) if self._heads else None

    def candidates(self, data: bytes) -> list[tuple[int, bytes]]:
        """Values that begin here, as far as heads tell; the first first, of those the longest."""
        if self._found is None:
            return []
        hits = self._found.find_matches_as_indexes(data, overlapping=True)
        found = [(start, needle) for at, start, _ in hits for needle in self._with_head[at]]
        return sorted(found, key=lambda each: (each[0], -len(each[1])))

    def begun(self, data: bytes) -> int:
        """How many of the last bytes are less than a head, and the beginning of one."""
        for size in range(min(_HEAD - 1, len(data)), 0, -1):
            end = data[-size:]
            at = bisect_left(self._heads, end)
            if at < len(self._heads) and self._heads[at].startswith(end):
                return size
        return 0


NOTHING = Matcher({})


class Redactor:
    """Holds back no more than could be the beginning of a value."""

    def __init__(self, matcher: Matcher, *, same_length: bool) -> None:
        self._matcher = matcher
        self._same_length = same_length
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if self._matcher is NOTHING:
            return data
        return self._taken_out(self._held + data if self._held else data, is_all=False)

    def end(self) -> bytes:
        """What was held back is not the beginning of what it could have been."""
        return self._taken_out(self._held, is_all=True)

    def _taken_out(self, data: bytes, *, is_all: bool) -> bytes:
        parts, place, until = [], 0, None
        for start, needle in self._matcher.candidates(data):
            if start < place:
                continue
            if start + len(needle) > len(data):
                if not is_all and needle.startswith(data[start:]):
                    until = start
                    break
            elif data.startswith(needle, start):
                parts += [data[place:start], self._shown(needle)]
                place = start + len(needle)
        if until is None:
            until = len(data) if is_all else len(data) - self._matcher.begun(data[place:])
        self._held = data[until:]
        return b"".join([*parts, data[place:until]])

    def _shown(self, needle: bytes) -> bytes:
        shown = self._matcher.shown[needle]
        return fitted(shown, len(needle)) if self._same_length else shown


def fitted(shown: bytes, length: int) -> bytes:
    """As long as what it stands for, where a length was announced before."""
    return shown[:length].ljust(length, b"*")
