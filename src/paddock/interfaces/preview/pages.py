"""Answers of the front itself: JSON for programs, a small page for people."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources

from paddock.domain.ids import new_id
from paddock.interfaces.preview.contract import Header, Reply, RequestHead

_REQUEST_ID = re.compile(rb"[\w.:-]{1,128}")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.S)
_COMMON: tuple[Header, ...] = (
    (b"Cache-Control", b"no-store"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Vary", b"Accept"),
)


@dataclass(frozen=True, slots=True)
class Link:
    """Somewhere to go from here."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong, in the words of the API's error object, with a title for the page."""

    status: int
    code: str
    message: str
    remediation: str = ""
    title: str = ""
    links: Sequence[Link] = ()
    links_label: str = ""
    retryable: bool = False
    retry_after_s: int | None = None


class Pages:
    """Builds replies. `brand` stands at the foot of every page; empty leaves it out."""

    def __init__(self, brand: str = "Paddock") -> None:
        self._brand = brand
        folder = resources.files(__package__)
        self._error = page_template(folder.joinpath("error.html").read_text("utf-8"))
        self._waiting = page_template(folder.joinpath("waiting.html").read_text("utf-8"))
        self._style = folder.joinpath("page.css").read_text("utf-8")

    def error(self, head: RequestHead | None, trouble: Trouble) -> Reply:
        """JSON, or a page where the client is a browser; None where no head could be read."""
        request_id = _request_id(head)
        if head is None or not accepts_html(head):
            return self._json(trouble, request_id)
        links = "".join(
            f'<a href="{html.escape(link.url)}">{html.escape(link.label)}</a>'
            for link in trouble.links
        )
        values = {
            "links": f"<p class=hint>{html.escape(trouble.links_label)}</p><nav>{links}</nav>"
            if links
            else "",
            "remediation": f"<p class=hint>{html.escape(trouble.remediation)}</p>"
            if trouble.remediation
            else "",
        }
        return self._page(self._error, trouble, values, request_id)

    def waiting(self, head: RequestHead, trouble: Trouble) -> Reply:
        """503 with Retry-After; the page comes back by itself, at the address that was asked for.

        Only somebody who navigates with GET gets the page. A form that was posted gets the plain
        answer, because a page that reloads would lose it.
        """
        if head.method not in ("GET", "HEAD"):
            return self._json(trouble, _request_id(head))
        if not accepts_html(head):
            return self._json(trouble, _request_id(head))
        values = {"seconds": str(trouble.retry_after_s or 2)}
        return self._page(self._waiting, trouble, values, _request_id(head))

    def _json(self, trouble: Trouble, request_id: str) -> Reply:
        error: dict[str, object] = {
            "code": trouble.code,
            "message": trouble.message,
            "retryable": trouble.retryable,
            "remediation": trouble.remediation,
            "request_id": request_id,
        }
        if trouble.links:
            error["links"] = [{"label": link.label, "url": link.url} for link in trouble.links]
        # Of a connection that is turned away nobody knows which API it is for, so the answer is
        # readable as an error of both: E2B's clients want a code and a message at the top.
        both = {"error": error, "code": trouble.status, "message": trouble.message}
        body = json.dumps(both, ensure_ascii=False).encode() + b"\n"
        return _reply(trouble, request_id, (b"Content-Type", b"application/json"), body)

    def _page(
        self, template: "PageTemplate", trouble: Trouble, values: Mapping[str, str], request_id: str
    ) -> Reply:
        escaped = {
            "title": trouble.title or HTTPStatus(trouble.status).phrase,
            "message": trouble.message,
            "status": str(trouble.status),
            "code": trouble.code,
            "request_id": request_id,
            "brand": self._brand,
        }
        filled = {name: html.escape(value) for name, value in escaped.items()} | dict(values)
        body = template.filled(filled | {"style": self._style}).encode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; {template.policy}"
        reply = _reply(trouble, request_id, (b"Content-Type", b"text/html; charset=utf-8"), body)
        return Reply(
            reply.status, (*reply.headers, (b"Content-Security-Policy", policy.encode())), body
        )


@dataclass(frozen=True, slots=True)
class PageTemplate:
    """An HTML file with `{{name}}` in the places that are filled in."""

    text: str
    policy: str
    """What its own script may do, and no other."""

    def filled(self, values: Mapping[str, str]) -> str:
        return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], self.text)


def page_template(text: str) -> PageTemplate:
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in _SCRIPT.findall(text)
    ]
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return PageTemplate(text, f"script-src {scripts}; connect-src 'self'; base-uri 'none'")


def accepts_html(head: RequestHead) -> bool:
    """Is there a person who looks at the answer? Programs and page parts do not ask for HTML."""
    return not head.is_upgrade and b"text/html" in (head.get(b"accept") or b"").lower()


def _request_id(head: RequestHead | None) -> str:
    given = head.get(b"x-request-id") if head else None
    if given and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return new_id("req")


def _reply(trouble: Trouble, request_id: str, kind: Header, body: bytes) -> Reply:
    headers = [
        kind,
        *_COMMON,
        (b"X-Paddock-Reason", trouble.code.encode()),
        (b"X-Request-Id", request_id.encode()),
    ]
    if trouble.retry_after_s is not None:
        headers.append((b"Retry-After", str(trouble.retry_after_s).encode()))
    return Reply(trouble.status, tuple(headers), body)
