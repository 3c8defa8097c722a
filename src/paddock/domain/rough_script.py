"""Shell scripts read roughly: well enough to notice what somebody should look at.

`adapters.shell_script` says what a script surely runs, and refuses what it is not sure of. This one
never refuses: it keeps `~`, `$HOME` and `*` as they were written, knows which command is fed by
which, and takes text in quotes, comments and here-documents for what they are. It guards nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_LARGEST = 64 << 10
_DEEPEST = 8
_MOST_FEEDING = 100
_NAME_END = frozenset(" \t\n;&|<>()")
_OPERATORS = ("<<<", "<<-", "&>>", "&&", "||", "|&", ";;", ">>", ">|", "<<", "<&", ">&", "&>")
_LEADING = frozenset("if then elif else while until do ! { time coproc".split())
"""What may stand before a command and is none."""
_ESCAPED = re.compile(r"\\([$`\"\\])")
"""In double quotes a backslash before anything else is a backslash."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


@dataclass(slots=True)
class Command:
    """One command as it was written, without its quotes."""

    words: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    """Files that its output is redirected to."""
    reads: list[str] = field(default_factory=list)
    here: str = ""
    """What a here-document or -string gives it to read."""
    fed_by: list["Command"] = field(default_factory=list)
    """Whose output it takes, by a pipe or in its arguments."""

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.writes or self.reads)


def read_roughly(text: str) -> list[Command]:
    """Every command in the script, those in substitutions before the one that they are for."""
    return _Reader(text[:_LARGEST], 0).read()


def without_quoted(text: str) -> str:
    """The script's own characters: what is in quotes, comments and here-documents is left out."""
    reader = _Reader(text[:_LARGEST], 0)
    reader.read()
    return "".join(reader.plain)


class _Reader:
    """One pass over a script."""

    def __init__(self, text: str, depth: int) -> None:
        self._text = text
        self._at = 0
        self._depth = depth
        self._found: list[Command] = []
        self._current = Command()
        self._awaited: list[tuple[Command, str, bool]] = []
        """Here-documents whose text begins with the next line."""
        self.plain: list[str] = []

    def read(self) -> list[Command]:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t" or self._text.startswith("\\\n", self._at):
                self._take(1 if char in " \t" else 2)
            elif char == "#":
                self._at = self._line_end()
            elif char == "\n":
                self._end_line()
            elif char in _NAME_END and not self._is_substitution():
                self._operator()
            else:
                self._word_here()
        self._end_command()
        return self._found

    def _is_substitution(self) -> bool:
        return self._text.startswith(("<(", ">("), self._at)

    def _take(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        self.plain.append(taken)
        return taken

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _end_line(self) -> None:
        self._end_command()
        self._take(1)
        for command, delimiter, is_indented in self._awaited:
            command.here = self._here_document(delimiter, is_indented)
        self._awaited.clear()

    def _here_document(self, delimiter: str, is_indented: bool) -> str:
        lines: list[str] = []
        while self._at < len(self._text):
            end = self._line_end()
            line = self._text[self._at : end]
            self._at = min(end + 1, len(self._text))
            if (line.lstrip("\t") if is_indented else line) == delimiter:
                break
            lines.append(line)
        return "\n".join(lines)

    def _operator(self) -> None:
        found = next((o for o in _OPERATORS if self._text.startswith(o, self._at)), "")
        found = self._take(len(found) or 1)
        if found[0] in "<>" or found in ("&>", "&>>"):
            self._redirect(found)
            return
        before = self._end_command()
        if found in ("|", "|&") and before is not None:
            self._current.fed_by.append(before)

    def _redirect(self, operator: str) -> None:
        if self._current.words and self._current.words[-1].isdigit():
            self._current.words.pop()  # the number of a descriptor
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._take(1)
        target = self._word()
        if operator in ("<<", "<<-"):
            self._awaited.append((self._current, target, operator == "<<-"))
        elif operator == "<<<":
            self._current.here = target
        elif operator == "<":
            self._current.reads.append(target)
        elif not (operator in (">&", "<&") and target.strip("-").isdigit()):
            self._current.writes.append(target)

    def _word_here(self) -> None:
        word = self._word()
        current = self._current
        if not current.words and (word in _LEADING or _ASSIGNMENT.match(word)):
            return
        current.words.append(word)

    def _end_command(self) -> Command | None:
        ended, self._current = self._current, Command()
        if ended.is_empty and not ended.fed_by:
            return None
        self._found.append(ended)
        return ended

    def _word(self) -> str:
        """The next word, without its quotes; what it substitutes is read, and kept as written."""
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._is_substitution() or self._text.startswith("$(", self._at):
                parts.append(self._substitution())
            elif char in _NAME_END:
                break
            elif char == "`":
                parts.append(self._backquoted())
            elif char == "'":
                parts.append(self._quoted())
            elif char == '"':
                parts.append(self._double_quoted())
            elif char == "\\":
                parts.append(self._text[self._at + 1 : self._at + 2].strip("\n"))
                self._at += 2
            else:
                parts.append(self._take(1))
        return "".join(parts)

    def _quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        end = len(self._text) if end < 0 else end
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        return inner

    def _double_quoted(self) -> str:
        parts: list[str] = []
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != '"':
            if self._text.startswith("$(", self._at):
                parts.append(self._substitution())
            elif self._text[self._at] == "`":
                parts.append(self._backquoted())
            else:
                escaped = _ESCAPED.match(self._text, self._at)
                parts.append(escaped[1] if escaped else self._text[self._at])
                self._at = escaped.end() if escaped else self._at + 1
        self._at += 1
        return "".join(parts)

    def _substitution(self) -> str:
        start = self._at
        self._at = _closing(self._text, start + 2)
        self._read_within(self._text[start + 2 : self._at])
        self._at = min(self._at + 1, len(self._text))
        return self._text[start : self._at]

    def _backquoted(self) -> str:
        start, end = self._at, self._text.find("`", self._at + 1)
        end = len(self._text) if end < 0 else end
        self._read_within(self._text[start + 1 : end])
        self._at = end + 1
        return self._text[start : self._at]

    def _read_within(self, text: str) -> None:
        if self._depth == _DEEPEST:
            return
        inner = _Reader(text, self._depth + 1).read()
        self._found.extend(inner)
        self._current.fed_by.extend(inner)


def _closing(text: str, at: int) -> int:
    """Where the parenthesis closes that was opened before; quotes may hold others."""
    depth, quote = 1, ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
        if not depth:
            return at
        at += 1
    return len(text)


def all_feeding(command: Command) -> Iterable[Command]:
    """Whose output reaches it, directly or by others; each once, and the nearest."""
    seen: set[int] = set()
    left = list(command.fed_by)
    while left and len(seen) < _MOST_FEEDING:
        other = left.pop()
        if id(other) not in seen:
            seen.add(id(other))
            yield other
            left += other.fed_by
