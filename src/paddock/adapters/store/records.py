"""Records to rows and back: some fields are columns, the rest is one JSON value."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from paddock.domain.errors import Broken, PaddockError

T = TypeVar("T")

# msgspec looks at a type when it first meets it; two threads that do so at once end the process.
_meeting = threading.Lock()
_met: set[type] = set()


def split(record: object, columns: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that are columns, and the others."""
    rest: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_plain)
    return {name: rest.pop(name) for name in columns}, rest


def restored(fields: Mapping[str, Any], kind: type[T]) -> T:
    """The record. A field that was not stored yet, by an older version, has its default."""
    # A column's name is a kind of str that msgspec does not take for one.
    plain = {f"{name}": value for name, value in fields.items()}
    try:
        return _converted(plain, kind)
    except (msgspec.ValidationError, PaddockError, ValueError) as error:
        raise Broken(
            f"{plain.get('id', 'a row')} is stored in a form that this version cannot read: "
            f"{error}",
            remediation="was a newer Paddock here? use that one, or restore a backup",
        ) from error


def _converted(plain: Mapping[str, Any], kind: type[T]) -> T:
    if kind in _met:
        return msgspec.convert(plain, kind)
    with _meeting:
        found = msgspec.convert(plain, kind)
        _met.add(kind)
    return found


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be stored")
