"""Previews: the public listener, host names of previews, and the pages it answers with."""

from paddock.interfaces.preview.config import FrontConfig
from paddock.interfaces.preview.contract import (
    NO_EDITS,
    Answer,
    Edits,
    Reply,
    RequestHead,
    Resolve,
    Upstream,
)
from paddock.interfaces.preview.front import Front
from paddock.interfaces.preview.hosts import (
    DEFAULT_DOMAIN,
    PreviewHost,
    parse_preview_host,
    preview_host,
)
from paddock.interfaces.preview.hub import Counts
from paddock.interfaces.preview.pages import Link, Pages, Trouble, accepts_html

__all__ = [
    "DEFAULT_DOMAIN",
    "NO_EDITS",
    "Answer",
    "Counts",
    "Edits",
    "Front",
    "FrontConfig",
    "Link",
    "Pages",
    "PreviewHost",
    "Reply",
    "RequestHead",
    "Resolve",
    "Trouble",
    "Upstream",
    "accepts_html",
    "parse_preview_host",
    "preview_host",
]
