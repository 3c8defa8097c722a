"""Shell scripts taken apart by tree-sitter's grammar of bash, and only where both surely agree.

The grammar is an editor's: it is lenient, and in corners it reads something else than bash does.
So nothing is taken on trust: a node of a kind that is not listed here, text that lies between
nodes, and every corner where the two are known to differ make a script unreadable. A test runs
generated scripts in the real bash and compares.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from paddock.domain.command_line import Script, Unreadable, Word, Words

LARGEST_SCRIPT = 32 << 10
_MOST_COMMANDS = 1000
_DEEPEST = 60
_BASH = Language(tree_sitter_bash.language())

_STATEMENTS = frozenset(
    "program list pipeline negated_command subshell compound_statement redirected_statement "
    "if_statement elif_clause else_clause while_statement do_group case_statement case_item "
    "command_substitution process_substitution file_redirect herestring_redirect "
    "variable_assignments".split()
)
_TESTS = frozenset(
    "unary_expression binary_expression parenthesized_expression negation_expression".split()
)
_REDIRECTS = ("file_redirect", "herestring_redirect")
_QUIET = frozenset("comment file_descriptor extglob_pattern regex test_operator".split())
_WORDS = frozenset(
    "word number string raw_string concatenation simple_expansion expansion ansi_c_string "
    "translated_string brace_expression arithmetic_expansion command_substitution "
    "process_substitution variable_name".split()
)
_RESERVED = frozenset(
    "{ } ! [[ ]] if then elif else fi for while until do done case esac select function in".split()
)
_EVALUATES = frozenset("-v -R -eq -ne -lt -le -gt -ge".split())
"""In `[[ … ]]` the operands of these are expressions, in which an index may run a command."""
_PLAIN_OPERATORS = frozenset("${ } # ## % %% / // /# /% : - :- + :+ ? :? = := ^ ^^ , ,,".split())
_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[\w({\[!@*#?$-])")
_GAP = re.compile(r"[ \t\n]*")
_CONTINUED = re.compile(r"(?:[ \t]|\\\n)*")
_DELIMITER = re.compile(r"(['\"]?)(\w+)\1")
_BACKSLASHED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r"[*?\[~{]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_STAND_IN = "§"
"""What the grammar is shown for every character beyond ASCII. To bash they are all the same, parts
of words and never of names; the grammar's scanner looks them up in a table of 256 entries, and to
look behind its end may end the process."""
_STOOD_IN = re.compile(_STAND_IN.encode())


def read_script(text: str) -> Script:
    """Every command that the script may run; Unreadable where that cannot be told."""
    if len(text) > LARGEST_SCRIPT:
        raise Unreadable(f"the script has more than {LARGEST_SCRIPT >> 10} KiB")
    if any((c.isspace() and c not in " \t\n") or (c < " " and c not in "\t\n") for c in text):
        raise Unreadable("the script has control characters or unusual blanks")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise Unreadable("the script is no text")
    content = _NOT_ASCII.sub(_STAND_IN, text).encode()
    reader = _Reader(text, content)
    reader.walk(Parser(_BASH).parse(content).root_node, 0)
    return Script(tuple(reader.commands), frozenset(reader.assigned))


class _Reader:
    """One pass over a tree, which collects commands and the variables that are set."""

    def __init__(self, text: str, content: bytes) -> None:
        self._script = text
        self._content = content
        self._wide = [found.start() for found in _STOOD_IN.finditer(content)]
        """Where characters are that have two bytes in the content, and one place in the text."""
        self.commands: list[Words] = []
        self.assigned: set[str] = set()

    def walk(self, node: Node, depth: int) -> None:
        if depth > _DEEPEST:
            raise Unreadable("the script is nested too deeply")
        if node.is_error or node.is_missing or node.has_error:
            raise Unreadable("the script is not understood")
        if not node.is_named or node.type in _QUIET:
            self._look_quiet(node, depth)
        elif node.type == "command":
            self._command(node, depth)
        elif node.type in _WORDS:
            self._word(node, depth)
        elif node.type in _STATEMENTS or node.type in _TESTS:
            self._statement(node, depth)
        else:
            self._other(node, depth)

    def _statement(self, node: Node, depth: int) -> None:
        first = node.children[0].type if node.children else ""
        if first == "((":
            raise Unreadable("it computes, and in that an index may run a command")
        if first == "`" and b"\\" in self._content[node.start_byte : node.end_byte]:
            raise Unreadable("there is a backslash in backquotes")
        if node.type in _REDIRECTS and sum(each.type in _WORDS for each in node.children) != 1:
            raise Unreadable("there are words after a redirection, or none")
        self._check_gaps(node)
        for child in node.children:
            self.walk(child, depth + 1)

    def _other(self, node: Node, depth: int) -> None:
        match node.type:
            case "declaration_command" | "unset_command":
                self._declaration(node, depth)
            case "variable_assignment":
                self._assignment(node, depth)
            case "for_statement" | "function_definition":
                self._check_gaps(node)
                for child in node.children:
                    if child.type == "variable_name":
                        self.assigned.add(self._text(child))
                    else:
                        self.walk(child, depth + 1)
            case "test_command":
                self._test(node, depth)
            case "heredoc_redirect":
                self._here_document(node, depth)
            case _:
                raise Unreadable(f"it has a {node.type.replace('_', ' ')}, which is not judged")

    def _command(self, node: Node, depth: int) -> None:
        words: list[Word] = []
        end: int | None = None
        for child in node.children:
            if child.type == "variable_assignment":
                self._assignment(child, depth + 1)
            elif child.type.endswith("_redirect"):
                self.walk(child, depth + 1)
            elif child.type == "command_name" and len(child.children) == 1:
                words.append(self._word(child.children[0], depth + 1))
            elif child.type in _WORDS:
                words.append(self._word(child, depth + 1))
            else:
                raise Unreadable(f"there is a {self._text(child)[:20]!r} among a command's words")
            if end is not None:
                self._check_apart(end, child)
            end = child.end_byte
        if not words or len(self.commands) == _MOST_COMMANDS:
            raise Unreadable("there are too many commands, or one without a name")
        if words[0] in _RESERVED:
            raise Unreadable(f"{words[0]!r} stands where a command should")
        self.commands.append(tuple(words))

    def _check_apart(self, end: int, child: Node) -> None:
        """In one line and with a blank between: a joined line may join words, too."""
        gap = self._content[end : child.start_byte].decode()
        joined = not (set(gap) & set(" \t")) and not child.type.endswith("_redirect")
        if not _CONTINUED.fullmatch(gap) or joined:
            raise Unreadable("it cannot be told where a word ends")

    def _declaration(self, node: Node, depth: int) -> None:
        self._check_gaps(node)
        words: list[Word] = [self._text(node.children[0])]
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self._assignment(child, depth + 1)
                words.append(f"{self._text(child.children[0])}=")
            else:
                words.append(self._word(child, depth + 1))
        self.commands.append(tuple(words))

    def _assignment(self, node: Node, depth: int) -> None:
        name, *rest = node.children
        if name.type != "variable_name":
            raise Unreadable("the index of a variable may run a command")
        self.assigned.add(self._text(name))
        for child in rest:
            if child.is_named:
                self._word(child, depth + 1)

    def _test(self, node: Node, depth: int) -> None:
        self._check_gaps(node)
        double = node.children[0].type == "[["
        for each in _within(node):
            operator = self._text(each)
            if (
                not each.children
                and operator in _EVALUATES
                and (double or operator in ("-v", "-R"))
            ):
                raise Unreadable(f"{operator} evaluates its operands")
        for child in node.children:
            self.walk(child, depth + 1)

    def _here_document(self, node: Node, depth: int) -> None:
        parts = {child.type: child for child in node.children}
        start, body, end = (parts.get(f"heredoc_{part}") for part in ("start", "body", "end"))
        found = _DELIMITER.fullmatch(self._text(start)) if start else None
        if start is None or body is None or end is None or found is None:
            raise Unreadable("a here-document is not understood")
        tabs = "\t" if "<<-" in parts else ""
        lines = [line.lstrip(tabs) if tabs else line for line in self._text(body).split("\n")]
        before = self._content[start.end_byte : body.start_byte].decode()
        whole = before.rstrip(tabs or "\n").count("\n") <= 1 and before.count("\n") == 1
        if not whole or found[2] in lines or self._text(end) != found[2]:
            raise Unreadable("it cannot be told where a here-document ends")
        for child in node.children:
            if child.is_named and not child.type.startswith("heredoc_"):
                self.walk(child, depth + 1)
        if not found[1]:
            self._expanding(body, depth)

    def _word(self, node: Node, depth: int) -> Word:
        """Its text where that is certain. What is substituted in it is walked."""
        if depth > _DEEPEST:
            raise Unreadable("the script is nested too deeply")
        match node.type:
            case "word" | "number" | "variable_name":
                return _unquoted(self._text(node))
            case "raw_string":
                return self._text(node)[1:-1]
            case "string":
                known = self._expanding(node, depth)
                return _unescaped(self._text(node)[1:-1]) if known else None
            case "concatenation":
                return self._joined(node, depth)
            case "expansion":
                self._expansion(node, depth)
            case "command_substitution" | "process_substitution":
                self._statement(node, depth)
            case "arithmetic_expansion":
                if any(each.type in ("variable_name", "word") for each in _within(node)):
                    raise Unreadable("it computes, and in that an index may run a command")
            case "simple_expansion" | "ansi_c_string" | "translated_string" | "brace_expression":
                pass
            case _:
                raise Unreadable(f"it has a {node.type.replace('_', ' ')}, which is not judged")
        return None

    def _joined(self, node: Node, depth: int) -> Word:
        """Several parts as one word. Braces and the like may span parts, so they are looked for in
        all bare parts together, with something harmless in place of the quoted ones."""
        bare, known, end = "", "", node.start_byte
        for child in node.children:
            if child.start_byte != end or not child.is_named:
                raise Unreadable("it cannot be told where a word ends")
            end = child.end_byte
            if child.type in ("word", "number"):
                bare += self._text(child)
                known += _BACKSLASHED.sub(r"\1", self._text(child))
                continue
            part = self._word(child, depth + 1)
            bare += "_" if part is not None else "*"
            known += part or ""
        return None if _unquoted(bare) is None else known

    def _expansion(self, node: Node, depth: int) -> None:
        for child in node.children:
            if child.type in ("variable_name", "special_variable_name"):
                if {each.type for each in node.children} & {"=", ":="}:
                    self.assigned.add(self._text(child))
            elif not child.is_named or child.type == "subscript":
                position = node.children.index(child)
                if child.type not in _PLAIN_OPERATORS or (child.type == ":" and position):
                    raise Unreadable(f"what {self._text(node)[:20]!r} stands for may run a command")
            elif child.type == "regex":
                self._look_quiet(child, depth)
            else:
                self._word(child, depth + 1)

    def _expanding(self, node: Node, depth: int) -> bool:
        """The inside of quotes or of a here-document: whether all of it is plain text."""
        plain, end = True, node.start_byte
        for child in node.children:
            self._look_plain(self._content[end : child.start_byte].decode())
            end = child.end_byte
            if child.type in ("string_content", "heredoc_content"):
                self._look_plain(self._text(child))
            elif child.is_named:
                self._word(child, depth + 1)
                plain = False
            elif child.type != '"':
                plain = False
        self._look_plain(self._content[end : node.end_byte].decode())
        return plain

    def _look_quiet(self, node: Node, depth: int) -> None:
        if node.type == "comment":
            before = self._content[max(0, node.start_byte - 1) : node.start_byte]
            if before and before not in b" \t\n;&|()":
                raise Unreadable("it cannot be told where a comment begins")
            return
        if node.children:
            for child in node.children:
                self.walk(child, depth + 1)
        elif node.is_named:
            self._look_plain(self._text(node))

    def _look_plain(self, text: str) -> None:
        if _HIDDEN.search(text):
            raise Unreadable("something is substituted where that is not expected")

    def _check_gaps(self, node: Node) -> None:
        """Between nodes there is nothing but blanks; a line that goes on needs one beside it."""
        end = node.start_byte
        for child in node.children:
            gap = self._content[end : child.start_byte].decode()
            if not _GAP.fullmatch(gap) and not (_CONTINUED.fullmatch(gap) and " " in gap):
                raise Unreadable("there is something that is not understood")
            end = child.end_byte
        if not _GAP.fullmatch(self._content[end : node.end_byte].decode()):
            raise Unreadable("there is something that is not understood")

    def _text(self, node: Node | None) -> str:
        if node is None:
            return ""
        start, end = (at - bisect_left(self._wide, at) for at in (node.start_byte, node.end_byte))
        return self._script[start:end]


def _within(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _within(child)


def _unquoted(text: str) -> Word:
    """A bare word; None when the shell would make something else of it."""
    if "\\\n" in text:
        raise Unreadable("it cannot be told where a word ends")
    plain = _BACKSLASHED.sub("", text)
    if "$" in plain or "`" in plain:
        return None
    for found in _SPECIAL.finditer(plain):
        at = found.start()
        if found[0] == "~" and at and plain[at - 1] not in ":=":
            continue
        if found[0] == "{" and plain[at : at + 2] == "{}":
            continue
        return None
    return _BACKSLASHED.sub(r"\1", text)


def _unescaped(text: str) -> str:
    return re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), text)
