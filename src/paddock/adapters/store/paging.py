"""Lists by key: a page begins where the last one ended, however deep, also while rows come."""

from typing import Any

from sqlalchemy import ColumnElement, Select, and_

from paddock.ports.store import Page


def newest_first(query: Select[Any], key: ColumnElement[str], page: Page) -> Select[Any]:
    """Ids sort by time."""
    if page.after:
        query = query.where(key < page.after)
    return query.order_by(key.desc()).limit(page.limit)


def begins_with(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    """As a range, which an index can serve; LIKE would ignore case on SQLite."""
    return and_(column >= prefix, column < prefix + "\U0010ffff")
