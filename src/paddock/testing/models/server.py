"""The scripted model as a server: takes requests, lets `playing` decide, sends what comes of it."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from aiohttp import web

from paddock.testing.models import playing
from paddock.testing.models.conversation import Asked, Json
from paddock.testing.models.playing import Step, Unplayable
from paddock.testing.models.record import Attempts, Record, Request
from paddock.testing.models.reply import Event, compact
from paddock.testing.models.routes import ASSIST, Kind, Route, route
from paddock.testing.models.script import BadScript, Fail, Script, checked, gates

MODELS = ("claude-sonnet-4-5", "gpt-5.5", "gemini-2.5-pro", "scripted")

_LARGEST_BODY = 64 * 2**20
_FOR_EVER_S = 365 * 24 * 3600.0


class ScriptedModel:
    """`async with ScriptedModel(script) as model:` serves it at `model.url`.

    Anyone who reaches the port is answered, so it listens on the loopback unless told otherwise.
    """

    def __init__(self, *scripts: Script, host: str = "127.0.0.1", port: int = 0) -> None:
        self._scripts = checked(scripts)
        self._host, self._port = host, port
        self._record = Record()
        self._attempts = Attempts()
        self._gates = {gate: asyncio.Event() for script in scripts for gate in gates(script)}
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._answer)
        # Cancelled with their connection: a reply that hangs must not outlive who asked for it.
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await runner.setup()
        self._runner = runner
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._port = runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The base without `/v1`, which most clients want to have added."""
        return f"http://{self._host}:{self._port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """Everything that was asked, oldest first; the oldest of very many are dropped."""
        return tuple(self._record)

    @property
    def dropped(self) -> int:
        return self._record.dropped

    @property
    def turns(self) -> tuple[Request, ...]:
        """The requests that got a turn of a script, retries included."""
        return tuple(request for request in self._record if request.is_turn)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why requests could not be answered from the scripts; empty in a good test."""
        return tuple(request.problem for request in self._record if request.problem)

    def open(self, gate: str) -> None:
        """Lets go of the turns that wait at this gate, now and later."""
        if gate not in self._gates:
            known = ", ".join(sorted(self._gates)) or "none"
            raise BadScript(f"no script has a gate {gate!r}; there are: {known}")
        self._gates[gate].set()

    async def wait_for(self, wanted: Callable[[Request], bool], timeout_s: float = 30) -> Request:
        """The first request of this kind, also one that has yet to come; TimeoutError without."""

        def first() -> Request | None:
            return next(filter(wanted, self._record), None)

        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: first() is not None)
            found = first()
            assert found is not None
            return found

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        if http.path == "/__log":
            return web.json_response([request.shown() for request in self._record])
        if http.path.startswith("/__open/") and http.method == "POST":
            return self._opened(http.path.removeprefix("/__open/"))
        found = route(http.path) if http.method == "POST" else None
        if found is None:
            return _other(http)
        body = await http.read()
        request = Request(
            number=self._record.count,
            at=time.time(),
            path=http.path_qs,
            headers={name.lower(): value for name, value in http.headers.items()},
            size=len(body),
            dialect=found.dialect.name,
        )
        response = await self._modelled(http, found, request, body)
        request.status = response.status
        return response

    def _opened(self, gate: str) -> web.Response:
        try:
            self.open(gate)
        except BadScript as error:
            return web.json_response({"error": str(error)}, status=404)
        return web.Response(status=204)

    async def _modelled(
        self, http: web.Request, found: Route, request: Request, body: bytes
    ) -> web.StreamResponse:
        try:
            request.body = _parsed(body)
            asked = request.asked = found.dialect.read(found.body(request.body))
            step = self._step(found, request, asked, _key(http))
        except Unplayable as error:
            request.problem = str(error)
            return _failed(found, request, Fail(error.status, str(error)))
        finally:
            self._record.add(request)
            async with self._changed:
                self._changed.notify_all()
        if step is None:
            return web.json_response(_simple(found, request))
        return await self._play(http, found, request, step)

    def _step(self, found: Route, request: Request, asked: Asked, key: str) -> Step | None:
        if found.kind is not Kind.REPLY:
            return None
        script = playing.find(self._scripts, asked, key)
        step = playing.step(script, asked, request.headers)
        request.script, request.turn = step.script, step.number
        return step

    async def _play(
        self, http: web.Request, found: Route, request: Request, step: Step
    ) -> web.StreamResponse:
        turn, attempt = step.turn, 0
        if step.number is not None:
            attempt = self._attempts.next((step.script, step.conversation, step.number))
        await asyncio.sleep(turn.wait_s)
        if turn.gate:
            await self._gates[turn.gate].wait()
        if turn.hang:
            await asyncio.sleep(_FOR_EVER_S)
        if turn.fail and _still(turn.fail.times, attempt):
            return _failed(found, request, turn.fail)
        attempt -= (turn.fail.times or 0) if turn.fail else 0
        request.was_cut = turn.cut is not None and _still(turn.cut.times, attempt)
        try:
            return await self._send(http, found, request, step)
        except Unplayable as error:
            request.problem = str(error)
            return _failed(found, request, Fail(error.status, str(error)))

    async def _send(
        self, http: web.Request, found: Route, request: Request, step: Step
    ) -> web.StreamResponse:
        assert request.asked is not None
        reply = playing.reply(step, request.asked, int(time.time()))
        if not request.asked.streams:
            if request.was_cut:
                _hang_up(http)
            data = found.answer(found.dialect.whole(reply))
            return web.json_response(data, headers=_headers(request), dumps=compact)
        head = {**_headers(request), "content-type": "text/event-stream"}
        response = web.StreamResponse(headers={**head, "cache-control": "no-cache"})
        await response.prepare(http)
        events = found.dialect.events(reply, request.asked)
        cut = step.turn.cut.after if request.was_cut and step.turn.cut else None
        for number, chunk in enumerate(_encoded(found, events)):
            if number == cut:
                break
            await asyncio.sleep(step.turn.pause_s)
            await response.write(chunk)
        if request.was_cut:
            _hang_up(http)
        return response


def _still(times: int | None, attempt: int) -> bool:
    return times is None or 0 <= attempt < times


def _hang_up(http: web.Request) -> None:
    """Without the end that HTTP prescribes, which clients take for a broken connection."""
    if http.transport:
        http.transport.close()


def _encoded(found: Route, events: Iterator[Event]) -> Iterator[bytes]:
    for event in events:
        data = event.data if isinstance(event.data, str) else found.answer(event.data)
        yield Event(data, event.name).encoded()


def _parsed(body: bytes) -> Json:
    try:
        given = json.loads(body)
    except ValueError as error:
        raise Unplayable(400, f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise Unplayable(400, f"the body is not an object but {type(given).__name__}")
    return given


def _key(http: web.Request) -> str:
    bearer = http.headers.get("authorization", "").removeprefix("Bearer ")
    own = http.headers.get("x-api-key") or http.headers.get("x-goog-api-key")
    return own or bearer or http.query.get("key", "")


def _headers(request: Request) -> dict[str, str]:
    return {"request-id": f"req_{request.number:06d}", "x-request-id": f"req_{request.number:06d}"}


def _failed(found: Route, request: Request, failure: Fail) -> web.Response:
    body = found.dialect.error(failure, f"req_{request.number:06d}")
    headers = {**_headers(request), **failure.headers}
    return web.json_response(body, status=failure.status, headers=headers, dumps=compact)


def _simple(found: Route, request: Request) -> Json:
    if found.kind is Kind.ASSIST:
        return ASSIST
    tokens = request.size // 4 + 1
    return {"totalTokens": tokens} if found.dialect.name == "gemini" else {"input_tokens": tokens}


def _other(http: web.Request) -> web.Response:
    """What clients ask for besides; a WebSocket is refused, after which they use HTTP."""
    if http.headers.get("upgrade"):
        return web.json_response({"error": "no WebSocket here: use HTTP"}, status=426)
    if http.method == "GET" and http.path.endswith("/v1beta/models"):
        return web.json_response({"models": [{"name": f"models/{name}"} for name in MODELS]})
    if http.method == "GET" and http.path.endswith("/models"):
        listed = [{"id": name, "object": "model", "type": "model"} for name in MODELS]
        return web.json_response({"object": "list", "has_more": False, "data": listed})
    known = "messages, responses, chat/completions, models/NAME:generateContent"
    found = f"{http.method} {http.path} is no model API; there are: {known}"
    return web.json_response({"error": {"message": found, "type": "not_found"}}, status=404)
