"""Records to rows and back: some fields are columns, the rest is one JSON value."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from paddock.domain.errors import Broken, PaddockError

T = TypeVar("T")


def split(record: object, columns: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that are columns, and the others."""
    rest: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_plain)
    return {name: rest.pop(name) for name in columns}, rest


def restored(fields: Mapping[str, Any], kind: type[T]) -> T:
    """The record. A field that was not stored yet, by an older version, has its default."""
    # A column's name is a kind of str that msgspec does not take for one.
    plain = {f"{name}": value for name, value in fields.items()}
    try:
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, PaddockError, ValueError) as error:
        raise Broken(
            f"{plain.get('id', 'a row')} is stored in a form that this version cannot read: "
            f"{error}",
            remediation="was a newer Paddock here? use that one, or restore a backup",
        ) from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be stored")
