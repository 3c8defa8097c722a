"""Types of columns that hold the same on every database."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, Text, TypeDecorator
from sqlalchemy.types import TypeEngine

from paddock.domain.errors import InvalidRequest

# SQLite numbers its rows itself, and quickest, when the key is called INTEGER.
Serial = BigInteger().with_variant(Integer, "sqlite")


_LARGEST = 1 << 50
"""What is added up in a column goes no higher: a sum of many of them is still a whole number."""


class Line(TypeDecorator[str]):
    """Text that is compared by its bytes: ids then sort by time, whatever the server's language."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Text(collation="C" if dialect.name == "postgresql" else None)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable(str(value))


class Json(TypeDecorator[Any]):
    """JSON as plain text: nothing looks inside, and no database has an opinion on what it holds.

    PostgreSQL's own types refuse some of what JSON allows, such as a NUL in a string.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return encode(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


def addable(amount: float) -> float:
    """An amount as a column has it. The record itself keeps whatever it is."""
    return min(amount, _LARGEST)


def storable(text: str) -> str:
    """SQLite would take a NUL and PostgreSQL not; half a surrogate pair neither of them."""
    if "\0" not in text:
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    raise InvalidRequest(
        f"{text[:80]!r} holds a character that is no text",
        remediation="leave out NUL and halves of surrogate pairs",
    )


def encode(value: Any) -> str:
    """ASCII throughout, so that every text can be told, and with no value that is not JSON."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"a value cannot be kept as JSON: {error}",
            remediation="use numbers that are finite, text, lists, and tables with text as keys",
        ) from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
