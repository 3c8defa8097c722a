"""The server: code in, lines of JSON out."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler

from .contexts import Context, Contexts, Refused

PORT = 49999
_KINDS = {"code": str, "context_id": str, "language": str, "cwd": str, "env_vars": dict}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Handler(RequestHandler):
    """What all have in common: JSON in both directions."""

    def initialize(self, contexts: Contexts) -> None:
        self.contexts = contexts

    def asked(self) -> dict[str, Any]:
        try:
            found = json.loads(self.request.body or b"{}")
        except ValueError:
            raise Refused("the body is no JSON") from None
        if not isinstance(found, dict):
            raise Refused("the body is no JSON object")
        for name, kind in _KINDS.items():
            if found.get(name) is not None and not isinstance(found[name], kind):
                raise Refused(f"{name} is no {kind.__name__}")
        return found

    def context(self, identifier: str) -> Context:
        found = self.contexts.get(identifier)
        if found is None:
            raise Refused(f"Context {identifier[:80]} not found", 404)
        return found

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None))[1]
        message = error.message if isinstance(error, Refused) else self._reason
        self.finish({"code": status_code, "message": message})


class Health(Handler):
    """It is there."""

    def get(self) -> None:
        self.finish("OK")


class Execute(Handler):
    """A cell. The answer goes on as long as it runs; who goes away interrupts it."""

    _is_left = False

    async def post(self) -> None:
        asked = self.asked()
        code, env = str(asked.get("code", "")), asked.get("env_vars") or {}
        if not all(_VARIABLE.fullmatch(str(name)) for name in env):
            raise Refused("a variable has a name that is none")
        if asked.get("context_id"):
            context = self.context(asked["context_id"])
        else:
            context = self.contexts.default(asked.get("language"))
        self.set_header("content-type", "application/x-ndjson")
        self._work = asyncio.ensure_future(self._run(context, code, env))
        try:
            await self._work
        except StreamClosedError:
            return
        except asyncio.CancelledError:
            if self._is_left:
                return
            raise
        await self.finish()

    async def _run(self, context: Context, code: str, env: dict[str, str]) -> None:
        lines = context.run(code, {str(name): str(value) for name, value in env.items()})
        try:
            async for line in lines:
                self.write(json.dumps(line) + "\n")
                await self.flush()
        finally:
            await lines.aclose()

    def on_connection_close(self) -> None:
        self._is_left = True
        self._work.cancel()


class ManyContexts(Handler):
    """All contexts, and new ones."""

    def get(self) -> None:
        self.set_header("content-type", "application/json")
        self.finish(json.dumps([each.shown() for each in self.contexts.list()]))

    async def post(self) -> None:
        asked = self.asked()
        context = await self.contexts.create(asked.get("language"), asked.get("cwd"))
        self.finish(context.shown())


class OneContext(Handler):
    """It ends."""

    async def delete(self, identifier: str) -> None:
        await self.contexts.remove(self.context(identifier))
        self.set_status(204)


class Restart(Handler):
    """It forgets everything."""

    async def post(self, identifier: str) -> None:
        await self.context(identifier).restart()
        self.set_status(204)


async def serve() -> None:
    """For ever. It answers once Python's kernel runs: then its sandbox is ready. JavaScript has a
    context from the start, as at E2B, but no kernel before its first cell."""
    contexts = Contexts(str(Path.home()))
    given = {"contexts": contexts}
    application = Application(
        [
            (r"/health", Health, given),
            (r"/execute", Execute, given),
            (r"/contexts", ManyContexts, given),
            (r"/contexts/([^/]+)", OneContext, given),
            (r"/contexts/([^/]+)/restart", Restart, given),
        ]
    )
    await contexts.default("python").begin()
    contexts.default("javascript")
    application.listen(PORT, "127.0.0.1")
    await asyncio.Event().wait()
