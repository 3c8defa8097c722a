"""Requests to models whose input is not all in them: the server has it, or fetches it."""

import re

import msgspec

from paddock.domain.broker.models import Dialect

WINDOW = 1 << 20
"""Tokens that models read at most; what is elsewhere may be as much as that."""
_MOST_BEFORE = 64
"""Of backslashes: texts quoted in texts have fewer."""
_MOST_LOOKED_AT = 10_000
_NONE = (b"null", b"[]", b'""')


class _Said(msgspec.Struct):
    previous_response_id: msgspec.Raw = msgspec.Raw(b"null")
    conversation: msgspec.Raw = msgspec.Raw(b"null")
    prompt: msgspec.Raw = msgspec.Raw(b"null")
    container: msgspec.Raw = msgspec.Raw(b"null")
    mcp_servers: msgspec.Raw = msgspec.Raw(b"null")
    plugins: msgspec.Raw = msgspec.Raw(b"null")
    web_search_options: msgspec.Raw = msgspec.Raw(b"null")
    cached_content: msgspec.Raw = msgspec.Raw(b"null")
    of_gemini: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="cachedContent")


_TOOL = "web_search|web_fetch|file_search|code_interpreter|code_execution|mcp"
"""Those that the server has itself: what they find is read by the model, too."""
_VALUE = r'"\s*+:\s*+"'
_MARKS = {
    Dialect.ANTHROPIC: (
        r"file_id" + _VALUE,
        # A link alone is none: what a tool was asked is JSON as well.
        rf'type{_VALUE}(?:url"|{_TOOL})',
    ),
    Dialect.OPENAI: (
        r"file_id" + _VALUE,
        r'file_ids"\s*+:\s*+\[',
        r'vector_store_ids"\s*+:\s*+\[',
        rf"url{_VALUE}(?!data:)",
        rf'type{_VALUE}(?:item_reference"|{_TOOL})',
    ),
    Dialect.GEMINI: (
        r"file_?[uU]ri" + _VALUE,
        r'google_?(?:[sS]earch|[mM]aps)[a-zA-Z_]*"\s*+:\s*+\{',
        r'url_?[cC]ontext"\s*+:\s*+\{',
        r'file_?[sS]earch"\s*+:\s*+\{',
        r'code_?[eE]xecution"\s*+:\s*+\{',
    ),
}
"""Each begins with a word, which is what makes a search of many megabytes quick."""
_COMPILED = {
    dialect: [re.compile(each.encode()) for each in marks] for dialect, marks in _MARKS.items()
}
_LETTER = re.compile(rb"\\u00(?:4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9Aa])")


def is_elsewhere(dialect: Dialect, body: bytes) -> bool:
    """Of a request that is JSON. Only its outside is parsed, since all the objects of a large one
    would take many times its size; within a text the quotes of a key would be escaped."""
    said = msgspec.json.decode(body or b"{}", type=_Said)
    if bytes(said.prompt).startswith(b"{"):  # the name of one; of old it is the text itself
        return True
    whole = msgspec.structs.astuple(msgspec.structs.replace(said, prompt=msgspec.Raw(b"null")))
    if any(bytes(each) not in _NONE for each in whole):
        return True
    return any(mark.search(body) for mark in _COMPILED[dialect]) or _spells_out(body)


def _spells_out(body: bytes) -> bool:
    """Whether a letter is escaped, as nobody does who has nothing to hide."""
    for number, found in enumerate(_LETTER.finditer(body)):
        start = found.start()
        before = body[max(0, start - _MOST_BEFORE) : start]
        if number == _MOST_LOOKED_AT or (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return True
    return False
