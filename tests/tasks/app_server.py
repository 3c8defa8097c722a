"""A development server as agents meet them: it reads its config when it starts, and makes its
assets when somebody asks for them."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

here = Path(sys.argv[2])
config = here / "vite.config.ts"
loaded = config.read_text() if config.exists() else ""
PAGE = """<!DOCTYPE html><html><head><title>Error</title><script type="module">
const error = {}
try {{ const {{ ErrorOverlay }} = await import('/@vite/client') }} catch {{ }}
</script></head><body></body></html>"""


class App(BaseHTTPRequestHandler):
    """Vite's manners, without Vite."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/":
            self.answer(500, "config is broken") if "broken" in loaded else self.answer(200, loaded)
        elif self.path == "/fails":
            self.answer(500, "<h1>Internal error</h1><p>no such table")
        elif self.path == "/moved":
            self.answer(302, "", Location="http://192.0.2.1/elsewhere")
        elif (asset := here / self.path.lstrip("/")).exists():
            self.asset(asset.read_text())
        else:
            self.answer(404, "")

    def asset(self, text):
        if "@bad" not in text:
            self.answer(200, text)
            return
        error = {"message": f"[postcss] Unknown word: {text}", "stack": "at x" * 30_000}
        self.chunked(500, PAGE.format(json.dumps(error).replace("<", "\\u003c")))

    def answer(self, status, text, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def chunked(self, status, text):
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(text), 1000):
            piece = text[at : at + 1000].encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        """Nobody reads it."""


HTTPServer(("127.0.0.1", int(sys.argv[1])), App).serve_forever()
