"""Files as the API shows and takes them: names are bytes, and survive as lone surrogates."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

from fastapi import Depends, Query, Request, Response
from pydantic import Field, PlainValidator, WithJsonSchema

from paddock.domain.errors import InvalidRequest
from paddock.guest_client.files import Entry, FileKind
from paddock.interfaces.api.schemas.common import Shape, Text
from paddock.services.files import Listed, Place, Sight
from paddock.services.tarball import Contents

_LONGEST = 4096
_DESCRIPTION = (
    "A relative path starts at the user's home. Bytes that are no UTF-8 are percent-encoded in a "
    "query, and lone surrogates (`\\\\udc80` to `\\\\udcff`) in JSON."
)


def check_path(path: object) -> str:
    if not isinstance(path, str) or not path:
        raise ValueError("a path is a text that is not empty")
    if "\0" in path:
        raise ValueError("a path has no NUL character")
    try:
        size = len(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise ValueError("a path is text, or bytes as \\udc80 to \\udcff") from None
    if size > _LONGEST:
        raise ValueError(f"a path has at most {_LONGEST} bytes")
    return path


FilePath = Annotated[
    Any,
    PlainValidator(check_path),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": _LONGEST, "examples": ["notes.txt"]}
    ),
    Field(description=_DESCRIPTION),
]
UserName = Annotated[Text, Field(max_length=64)]


async def place(
    request: Request,
    sandbox: str,
    path: Annotated[str, Query(min_length=1, max_length=_LONGEST, description=_DESCRIPTION)],
    user: Annotated[
        UserName, Query(description="whose rights count; the sandbox's user unless said")
    ] = "",
) -> Place:
    """The path byte for byte: what the framework read may have lost some."""
    del path
    query = request.scope["query_string"].decode("latin-1")
    pairs = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    try:
        return Place(sandbox, check_path(dict(reversed(pairs)).get("path")), user)
    except ValueError as error:
        raise InvalidRequest(
            f"query.path: {error}", remediation="give the path percent-encoded"
        ) from None


At = Annotated[Place, Depends(place)]
MAX_LISTED = 10_000


async def readable_place(
    place: At,
    wake: Annotated[
        bool,
        Query(
            description="whether a sandbox that cannot be read while it sleeps is started for it; "
            "the headers `X-Paddock-State` and `X-Paddock-Woken` say what was done"
        ),
    ] = False,
) -> Place:
    return replace(place, wake=wake)


async def waking_place(
    place: At,
    wake: Annotated[bool, Query(description="whether a sandbox that sleeps is started for it")] = (
        False
    ),
) -> Place:
    return replace(place, wake=wake)


ReadAt = Annotated[Place, Depends(readable_place)]
WakingAt = Annotated[Place, Depends(waking_place)]
ListCursor = Annotated[
    str, Query(max_length=2 * _LONGEST, description="next_cursor of the page before")
]


async def closed_names(
    exclude: Annotated[
        list[Annotated[Text, Field(max_length=255)]] | None,
        Query(
            max_length=100,
            description="names, which may be patterns; instead of those of the setting "
            "`files.excluded`. Empty excludes nothing.",
        ),
    ] = None,
) -> list[str] | None:
    return None if exclude is None else [name for name in exclude if name]


Closed = Annotated[list[str] | None, Depends(closed_names)]


def read_cursor(cursor: str) -> str:
    """A path below the directory as bytes, in letters that a URL leaves alone."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        path = base64.b64decode(padded, b"-_", validate=True).decode("utf-8", "surrogateescape")
    except ValueError:
        path = "/"
    if cursor and ("\0" in path or {"", ".", ".."} & set(path.split("/"))):
        raise InvalidRequest(
            "query.cursor: it is none of ours", remediation="use next_cursor as it was given"
        )
    return path


def _cursor(after: str) -> str | None:
    data = after.encode("utf-8", "surrogateescape")
    return base64.urlsafe_b64encode(data).decode().rstrip("=") or None


class EntryShape(Shape):
    """A file, a directory or a link."""

    name: str
    path: str
    kind: FileKind
    size: int
    mode: str = Field(description="permissions in octal", examples=["644"])
    owner: str
    group: str
    modified_at: datetime
    symlink_target: str | None
    metadata: dict[str, str]


class TextShape(EntryShape):
    """A file and what is in it."""

    text: str
    etag: str | None = Field(description="of this version, as `GET …/files` has it")


class Listing(Shape):
    """A page of what is in a directory, to the depth that was asked for."""

    items: list[EntryShape]
    excluded: list[str] = Field(description="directories of such names were not entered")
    next_cursor: str | None = Field(None, description="ask with this cursor for the next page")


class MoveFile(Shape):
    """What is moved, and where to."""

    source: FilePath
    destination: FilePath
    user: UserName = ""


class MakeDirectory(Shape):
    """A directory that is to be; those above it are made too."""

    path: FilePath
    user: UserName = ""


class Unpacked(Shape):
    """What an archive has brought."""

    files: int
    directories: int
    links: int
    bytes: int


def show_entry(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "path": entry.path,
        "kind": entry.kind,
        "size": entry.size,
        "mode": f"{entry.mode:o}",
        "owner": entry.owner,
        "group": entry.group,
        "modified_at": entry.modified.isoformat(),
        "symlink_target": entry.symlink_target,
        "metadata": dict(entry.metadata),
    }


def show_listing(listed: Listed) -> dict[str, Any]:
    return {
        "items": [show_entry(entry) for entry in listed.entries],
        "excluded": list(listed.closed),
        "next_cursor": _cursor(listed.after),
    }


def show_sight(sight: Sight) -> dict[str, str]:
    return {
        "x-paddock-state": sight.state.value,
        **({"x-paddock-woken": "true"} if sight.woken else {}),
    }


def shown_names(names: Sequence[str]) -> str:
    """In a header, which has ASCII only."""
    return ", ".join(quote(name, safe="*?[]!") for name in names)


def show_contents(contents: Contents) -> Unpacked:
    return Unpacked(
        files=contents.files,
        directories=contents.directories,
        links=contents.links,
        bytes=contents.bytes,
    )


def answer(
    body: Mapping[str, Any], status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """In ASCII with escapes, which can say every name there is."""
    content = json.dumps(body, separators=(",", ":"))
    return Response(content, status, media_type="application/json", headers=headers)
