"""Programs get JSON, people a page, and nobody gets what a stranger wrote unescaped."""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import tempfile

import pytest

from paddock.domain.ids import is_id
from paddock.interfaces.preview import Link, Pages, Reply, RequestHead, Trouble
from tests.interfaces.preview.conftest import MOSTLY_UVLOOP
from tests.interfaces.preview.running import answering, fetch, get, to_port

BROWSER = (b"Accept", b"text/html,application/xhtml+xml,*/*;q=0.8")
WAKING = Trouble(
    503,
    "waking",
    "The sandbox web is being started.",
    title="Waking up",
    retryable=True,
    retry_after_s=2,
)
NOBODY = Trouble(
    502,
    "nothing_listens",
    "Nothing listens on port 3000 in the sandbox web.",
    "Start a server on port 3000, on 0.0.0.0 or 127.0.0.1.",
    title="Nothing listens here",
    links=(
        Link("5173", "http://5173-web.preview.localhost:7070/"),
        Link("8080", "http://8080-web.preview.localhost:7070/"),
    ),
    links_label="These ports do answer:",
)


def head(*headers: tuple[bytes, bytes], method: str = "GET", upgrade: bool = False) -> RequestHead:
    return RequestHead(method, b"/", "x.test", headers, is_upgrade=upgrade)


def header(reply: Reply, name: bytes) -> bytes | None:
    return next((value for key, value in reply.headers if key == name), None)


def test_a_program_gets_the_error_object_of_the_api():
    reply = Pages().error(head((b"Accept", b"*/*")), NOBODY)
    error = json.loads(reply.body)["error"]
    assert reply.status == 502
    assert header(reply, b"Content-Type") == b"application/json"
    assert is_id(error.pop("request_id"), "req")
    assert error.pop("links") == [{"label": link.label, "url": link.url} for link in NOBODY.links]
    assert error == {
        "code": "nothing_listens",
        "message": NOBODY.message,
        "retryable": False,
        "remediation": NOBODY.remediation,
    }


def test_a_request_id_that_was_given_is_kept():
    given = (b"X-Request-Id", b"abc-123")
    reply = Pages().error(head(given), NOBODY)
    assert json.loads(reply.body)["error"]["request_id"] == "abc-123"
    assert header(reply, b"X-Request-Id") == b"abc-123"
    forged = Pages().error(head((b"X-Request-Id", b"<b>")), NOBODY)
    assert b"<b>" not in forged.body


@pytest.mark.parametrize("status", [400, 404, 410, 502, 503, 504])
def test_a_browser_gets_a_page_that_needs_nothing_else(status):
    trouble = Trouble(status, "some_code", "What happened.", "What to do.")
    reply = Pages().error(head(BROWSER), trouble)
    text = reply.body.decode()
    assert reply.status == status
    assert header(reply, b"Content-Type") == b"text/html; charset=utf-8"
    assert header(reply, b"Cache-Control") == b"no-store"
    assert "What happened." in text and "What to do." in text
    assert not re.search(r'(?:src|href)="(?!data:,)', text)
    assert "url(" not in text and "@import" not in text and "{{" not in text
    assert "<script" not in text


def test_whoever_waits_gets_503_with_a_time_to_come_back():
    for reply in (
        Pages().waiting(head(BROWSER), WAKING),
        Pages().waiting(head(), WAKING),
    ):
        assert reply.status == 503
        assert header(reply, b"Retry-After") == b"2"
        assert header(reply, b"X-Paddock-Reason") == b"waking"


def test_the_waiting_page_comes_back_by_itself_with_and_without_scripts():
    reply = Pages().waiting(head(BROWSER), WAKING)
    text = reply.body.decode()
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in text
    script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in header(reply, b"Content-Security-Policy").decode()


@pytest.mark.parametrize(
    "asker",
    [
        head(BROWSER, method="POST"),
        head((b"Accept", b"image/*")),
        head(),
        head(BROWSER, upgrade=True),
    ],
)
def test_only_somebody_who_looks_at_it_gets_the_page(asker):
    reply = Pages().waiting(asker, WAKING)
    assert reply.status == 503
    assert json.loads(reply.body)["error"]["code"] == "waking"


def test_what_others_wrote_is_escaped():
    evil = '<script>alert("x")</script>&{{brand}}'
    trouble = Trouble(
        404, "not_found", evil, evil, title=evil, links=(Link(evil, f'"{evil}'),), links_label=evil
    )
    text = Pages(brand=evil).error(head(BROWSER), trouble).body.decode()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 8
    assert "&amp;{{brand}}" in text


def test_the_brand_can_be_another_or_none():
    assert b"<span>Acme</span>" in Pages(brand="Acme").error(head(BROWSER), NOBODY).body
    assert b"addock<" not in Pages(brand="").error(head(BROWSER), NOBODY).body


async def test_the_front_s_own_errors_are_pages_too(serve):
    async with answering(b"nonsense\r\n\r\n") as upstream:
        front = serve(to_port(upstream.port))
        page = await fetch(front.port, get("/", "Accept: text/html"))
        data = await fetch(front.port, get("/", "Accept: application/json"))
        nothing = await fetch(
            front.port, get("/", "Accept: text/html").replace(b"GET", b"HEAD"), "HEAD"
        )
    assert (page.status, page.get("content-type")) == (502, "text/html; charset=utf-8")
    assert b"<h1>Bad Gateway</h1>" in page.body
    assert (data.status, data.get("content-type")) == (502, "application/json")
    assert (nothing.status, nothing.body) == (502, b"")
    assert int(nothing.get("content-length")) > 1000


@pytest.fixture
def browse(need):
    """`await browse(url)` is the document after a real browser has run its scripts."""
    program = shutil.which("chromium")
    if program is None:
        need("chromium", "not installed")

    async def load(url: str, *flags: str) -> str:
        with tempfile.TemporaryDirectory(prefix="paddock-chromium-") as home:
            process = await asyncio.create_subprocess_exec(
                *(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-background-networking", f"--user-data-dir={home}", *flags),
                *("--host-resolver-rules=MAP *.preview.localhost 127.0.0.1", "--dump-dom", url),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            try:
                async with asyncio.timeout(60):
                    return (await process.communicate())[0].decode()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    return load


@pytest.mark.parametrize("serve", MOSTLY_UVLOOP, indirect=True)
async def test_a_browser_waits_and_then_sees_the_app_at_the_same_address(serve, browse):
    pages, seen = Pages(), []

    def resolve(asked):
        seen.append((asked.method, asked.target))
        if len(seen) <= 3:
            return pages.waiting(asked, WAKING)
        page = b"<!doctype html><title>app</title><p id=here>"
        script = b"<script>here.textContent = location.href</script>"
        return Reply(200, ((b"Content-Type", b"text/html"),), page + script)

    front = serve(resolve)
    url = f"http://3000-web.preview.localhost:{front.port}/a/b?c=d"
    text = await browse(f"{url}#part", "--virtual-time-budget=8000")
    assert f'<p id="here">{url}#part</p>' in text
    assert seen[0] == ("GET", b"/a/b?c=d")
    assert ("HEAD", b"/a/b?c=d") in seen
    pages_seen = [method for method, target in seen if target == b"/a/b?c=d"]
    assert pages_seen.count("GET") == 2
