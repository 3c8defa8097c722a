"""What a page that tells of an error says, in a few words."""

import html
import json
import re
from typing import Any

LONGEST = 400
_DATA = re.compile(r"\bconst error = (?=\{)")
"""How a Vite server has its error in the page: as JSON in a script."""
_MESSAGE = re.compile(r'"message"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.)*")')
_UNSEEN = re.compile(r"<(script|style|head|template)\b.*?(?:</\1\s{0,9}>|\Z)", re.I | re.S)
_TITLE = re.compile(r"<title\b[^<>]{0,200}>([^<]{0,500})", re.I)
_SAID = re.compile(r"<(pre|h1|h2|p)\b[^<>]{0,500}>(.*?)(?:</\1\s{0,9}>|\Z)", re.I | re.S)
_TAG = re.compile(r"<[^<>]{0,2000}>")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_NAMES = ("message", "error", "detail", "title")


def error_in(page: str) -> str:
    """On one line and uncut, so that whoever masks it sees whole values; empty where it says
    nothing."""
    found = _of_script(page) or _of_json(page)
    if not found and "<" in page:
        found = _of_html(page)
    return _line(found or page)


def shortened(said: str) -> str:
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def _of_script(page: str) -> str:
    begin = _DATA.search(page)
    if begin is None:
        return ""
    # Not read as a whole: the rest of it is large, and often cut.
    found = _MESSAGE.search(page, begin.end())
    try:
        return str(json.loads(found[1])) if found else ""
    except ValueError:
        return ""


def _of_json(page: str) -> str:
    if not page.lstrip().startswith("{"):
        return ""
    try:
        return _words(json.loads(page))
    except (ValueError, RecursionError):
        return ""


def _words(error: Any) -> str:
    for _ in range(3):  # {"error": {"message": …}}
        if isinstance(error, str):
            return error
        if not isinstance(error, dict):
            return ""
        error = next((error[name] for name in _NAMES if error.get(name)), "")
    return error if isinstance(error, str) else ""


def _of_html(page: str) -> str:
    """What is put first and what is set apart says most."""
    title, seen = _TITLE.search(page), _UNSEEN.sub(" ", page)
    said = [_line(_text(each[2])) for each in _SAID.finditer(seen)]
    return " – ".join(filter(None, said)) or _line(_text(seen)) or _text(title[1] if title else "")


def _text(markup: str) -> str:
    return html.unescape(_TAG.sub(" ", markup))


def _line(text: str) -> str:
    return " ".join(_COLOR.sub("", text).replace("\0", " ").split())
