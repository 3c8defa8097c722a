"""Values taken out of what a server answers, as it streams by.

What is delivered, and when, never depends on how much of a value is at the end of the data.
Otherwise a program that has its guesses echoed would learn the value byte by byte. So the redactor
always holds back as many bytes as the longest value has, except before a line break. A search takes
the same time for any text that contains no value.
"""

from collections import defaultdict
from collections.abc import Mapping

from ahocorasick_rs import BytesAhoCorasick, Implementation

_END = 64
"""Only the last bytes of a value are searched for; a match is then compared as a whole. So neither
the time to prepare nor to search depends on the length of values. The beginning would be unsafe,
because that of many values is known. Even in the longest form the end covers ten characters of a
value, too many to guess."""


class Matcher:
    """Finds any of many values. One matcher serves all responses that may contain them."""

    def __init__(self, needles: Mapping[bytes, bytes]) -> None:
        self.shown = dict(needles)
        self.longest = max(map(len, needles), default=0)
        self.is_in_lines = not any(b"\n" in needle for needle in needles)
        """Whether no value contains a line break."""
        by_end: dict[bytes, list[bytes]] = defaultdict(list)
        for needle in needles:
            by_end[needle[-_END:]].append(needle)
        self._with_end = list(by_end.values())
        # The other implementations take longer the more of a value is in the text.
        made = BytesAhoCorasick(list(by_end), implementation=Implementation.DFA) if by_end else None
        self._found = made

    def matches(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return where each value begins, in order; of those at one place, the longest first."""
        if self._found is None:
            return []
        hits = self._found.find_matches_as_indexes(data, overlapping=True)
        found = [
            (end - len(needle), needle) for at, _, end in hits for needle in self._with_end[at]
        ]
        whole = [each for each in found if each[0] >= 0 and data.startswith(each[1], each[0])]
        return sorted(whole, key=lambda each: (each[0], -len(each[1])))


NOTHING = Matcher({})


class Redactor:
    """Holds back as much as could be part of the longest value, whatever the data is."""

    def __init__(self, matcher: Matcher, *, same_length: bool) -> None:
        self._matcher = matcher
        self._same_length = same_length
        self._most = matcher.longest - 1
        self._held = b""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes, settled: int = 0) -> bytes:
        """Return what may be delivered now. The caller knows that no value crosses the end of the
        first `settled` bytes."""
        if self._matcher is NOTHING:
            return data
        if self._held:
            settled += len(self._held) if settled else 0
            data = self._held + data
        line = data.rfind(b"\n") + 1 if self._matcher.is_in_lines else 0
        return self._given_out(data, max(settled, line, len(data) - self._most))

    def release(self) -> bytes:
        """Return all that is held back. A value that continues in later data is then not found."""
        return self._given_out(self._held, len(self._held)) if self._held else b""

    def _given_out(self, data: bytes, until: int) -> bytes:
        if until <= 0:
            self._held = data
            return b""
        parts, place = [], 0
        for start, needle in self._matcher.matches(data):
            if start >= until:
                break
            if start >= place:
                parts += [data[place:start], self._shown(needle)]
                place = start + len(needle)
        until = max(place, until)
        self._held = data[until:]
        return b"".join([*parts, data[place:until]])

    def _shown(self, needle: bytes) -> bytes:
        shown = self._matcher.shown[needle]
        return fitted(shown, len(needle)) if self._same_length else shown


def fitted(shown: bytes, length: int) -> bytes:
    """As long as what it stands for, where a length was announced before."""
    return shown[:length].ljust(length, b"*")
