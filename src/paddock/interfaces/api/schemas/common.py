"""Shapes that several routes share."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from paddock.domain.errors import InvalidRequest
from paddock.ports.store import Page

T = TypeVar("T")
R = TypeVar("R")


class Shape(BaseModel):
    """Unknown fields are errors: a misspelt one must not pass as left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ListOf(Shape, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: str | None = Field(None, description="ask with this cursor for the next page")


class ErrorDetail(Shape):
    """What went wrong and what to do about it."""

    code: str
    message: str
    retryable: bool
    remediation: str
    request_id: str
    exit_code: int | None = Field(
        None,
        description="of a command that was not started: 127 where there is no such program, 126 "
        "where it cannot be executed; absent for all other errors",
    )


class ErrorBody(Shape):
    """The body of every answer that is an error.

    Other fields may follow: a request that is refused before its API is known has E2B's too.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    error: ErrorDetail


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode text") from None
    return text


Text = Annotated[str, AfterValidator(_no_nul)]
Name = Annotated[str, Field(max_length=63, examples=["demo"])]
Labels = Annotated[
    dict[
        Annotated[Text, Field(min_length=1, max_length=63)], Annotated[Text, Field(max_length=256)]
    ],
    Field(max_length=64),
]
LabelFilter = Annotated[list[str] | None, Query(description="NAME=VALUE; all must match")]
Env = Annotated[
    dict[
        Annotated[Text, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)],
        Annotated[Text, Field(max_length=131072)],
    ],
    Field(max_length=500),
]
Identity = Annotated[
    Text,
    Field(
        max_length=512,
        examples=["acme/shop#42"],
        description="of the work that it is for, in words of your own; sandboxes with the same one "
        "are a group",
    ),
]
Port = Annotated[int, Field(ge=1, le=65535)]


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else at(seconds)


def at(seconds: float) -> datetime:
    """What no calendar has becomes the nearest that it has: a list must not fail because of one
    row, or of what a guest says the time is."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return _FIRST if seconds < 0 else _LAST


def paged(
    found: Sequence[T], limit: int, show: Callable[[T], R], cursor: Callable[[T], Any]
) -> ListOf[R]:
    """`found` was asked for with one row more than `limit`, which tells whether there is more."""
    items = found[:limit]
    more = len(found) > limit
    return ListOf[R](
        items=[show(item) for item in items],
        next_cursor=str(cursor(items[-1])) if more else None,
    )


def page_of(
    found: Sequence[T],
    page: Page,
    show: Callable[[T], R],
    cursor: Callable[[T], str],
    *,
    last_first: bool = False,
) -> ListOf[R]:
    """A page of a list that is at hand as a whole, in the order of its cursors."""
    whole = sorted(found, key=cursor, reverse=last_first)
    rest = [
        item
        for item in whole
        if not page.after
        or (cursor(item) < page.after if last_first else cursor(item) > page.after)
    ]
    return paged(rest[: page.limit], page.limit - 1, show, cursor)


def labels_of(given: Sequence[str] | None) -> dict[str, str]:
    """What a list is filtered by."""
    labels = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidRequest(
                f"label={text[:80]!r} is no filter", remediation="write it as label=NAME=VALUE"
            )
        labels[name] = value
    return labels
