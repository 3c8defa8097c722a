"""Values taken out of what a server answers, as it streams by.

What is given out, and when, never depends on how much of a value stands at the end: a program that
has its guesses echoed would learn the value from it, byte by byte. So as much is always held back
as the longest value has, up to the last line break, and a search takes the same time whatever it
meets, unless it meets a value.
"""

from collections import defaultdict
from collections.abc import Mapping

from ahocorasick_rs import BytesAhoCorasick, Implementation

_END = 64
"""By so much of its end a value is looked for; only what fits is compared whole. So neither the
time to get ready nor that of a look depends on how long values are. It is the end, and not the
beginning, because of many values the beginning is known; the longest forms have ten of a value's
characters in it, too many to be guessed."""


class Matcher:
    """Where any of many values is, ready to be used for all answers that they may be in."""

    def __init__(self, needles: Mapping[bytes, bytes]) -> None:
        self.shown = dict(needles)
        self.longest = max(map(len, needles), default=0)
        self.is_in_lines = not any(b"\n" in needle for needle in needles)
        """No value goes beyond a line break."""
        by_end: dict[bytes, list[bytes]] = defaultdict(list)
        for needle in needles:
            by_end[needle[-_END:]].append(needle)
        self._with_end = list(by_end.values())
        # The other implementations are slower where more of a value stands in the text.
        made = BytesAhoCorasick(list(by_end), implementation=Implementation.DFA) if by_end else None
        self._found = made

    def matches(self, data: bytes) -> list[tuple[int, bytes]]:
        """Where each value begins; the first first, of those the longest."""
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
    """Holds back what could be a part of the longest value, whether or not it looks like one."""

    def __init__(self, matcher: Matcher, *, same_length: bool) -> None:
        self._matcher = matcher
        self._same_length = same_length
        self._most = matcher.longest - 1
        self._held = b""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes, settled: int = 0) -> bytes:
        """What may be given out now. So many of these bytes are `settled` by who knows that no
        value goes beyond them."""
        if self._matcher is NOTHING:
            return data
        if self._held:
            settled += len(self._held) if settled else 0
            data = self._held + data
        line = data.rfind(b"\n") + 1 if self._matcher.is_in_lines else 0
        return self._given_out(data, max(settled, line, len(data) - self._most))

    def release(self) -> bytes:
        """All that is held. A value that goes on in what comes later is not found any more."""
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
