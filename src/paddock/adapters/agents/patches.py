"""Edits in the form in which OpenAI's models give them: `*** Begin Patch`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from paddock.adapters.agents import diffs

_SECTION = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MARKS = ("+", "-", " ", "@@")


@dataclass(frozen=True, slots=True)
class Patched:
    """What becomes of one file."""

    path: str
    kind: str
    lines: tuple[str, ...]

    @property
    def diff(self) -> str:
        """As far as the patch says it: of what is deleted or only moved, nothing."""
        if self.kind == "add":
            new = "".join(f"{line[1:]}\n" for line in self.lines if line.startswith("+"))
            return diffs.between(self.path, None, new)
        hunks = "".join(f"{line}\n" for line in self.lines if line.startswith(_MARKS))
        return diffs.headed(self.path, hunks) if hunks else ""


def files_of(patch: str) -> Iterator[Patched]:
    """Each file that it is about, in its order; nothing for a text that is no patch."""
    kind = path = ""
    lines: list[str] = []
    for line in patch.splitlines():
        found = _SECTION.match(line)
        if found or line.startswith("*** End Patch"):
            if path:
                yield Patched(path, kind, tuple(lines))
            kind, path = (found[1].lower(), found[2].strip()) if found else ("", "")
            lines = []
        else:
            lines.append(line)
