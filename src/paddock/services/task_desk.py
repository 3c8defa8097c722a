"""At a task's desk: what its agent says there is checked, kept, told and answered.

It is in the sandbox, at the guest: who asks is known by whose guest the call came from, and by the
token of the run. So the network a sandbox has, or has not, makes no difference.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.domain.agent import Brief, ToolServer
from paddock.domain.broker.masking import Mask
from paddock.domain.desk import Ask, Claim, Pace, Progress, Wanted, check_token, mcp, read, token_of
from paddock.domain.desk.saying import MOST_CLAIMS
from paddock.domain.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PaddockError,
    Unauthenticated,
    Unsupported,
)
from paddock.domain.event import EventKind
from paddock.domain.task import TaskRecord
from paddock.guest_client.desks import DeskCall
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store, Transaction
from paddock.services.agent_questions import AgentQuestions
from paddock.services.quotas import append_within
from paddock.services.task_events import note
from paddock.services.task_post import Setting
from paddock.services.transfers import TransferGuest

_log = logging.getLogger(__name__)
URL, TOKEN = "PADDOCK_TASK_URL", "PADDOCK_TASK_TOKEN"
_KEY = "task-token-key"
_WAIT_S = 15.0
_PAUSE_S = 0.5
_EVERY_S = 1.0
_STATUS: Mapping[type[PaddockError], int] = {
    InvalidRequest: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    LimitExceeded: 429,
}
_ON_RECORD = "Your question is on record. End your turn now; the answer comes as your next message."
_USAGE = {
    "desk": "of a task's agent; POST with the token in $PADDOCK_TASK_TOKEN",
    "/ask": {"question": "text", "options": ["text"], "timeout_s": "seconds"},
    "/progress": {"text": "text", "percent": "0 to 100"},
    "/verdict": {"name": "text", "passed": "true or false", "detail": "text"},
    "/mcp": "the same as an MCP server",
}


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Seat:
    """Whose desk it is."""

    task_id: str
    sandbox_id: str
    run: int
    key: bytes = field(repr=False)
    mask: Mask = field(repr=False)
    pace: Pace = field(default_factory=Pace)


class TaskDesks:
    """One for each run of an agent."""

    def __init__(self, store: Store, clock: Clock, questions: AgentQuestions) -> None:
        self._store = store
        self._clock = clock
        self._questions = questions
        self._key = b""

    @asynccontextmanager
    async def at(self, task: TaskRecord, given: Setting) -> AsyncIterator[Setting]:
        """Whoever asks there is answered, for as long as this lasts. It is closed with the run, not
        with who attends to it."""
        run, guest = task.conversation.run_key(task.id), given.guest
        try:
            port = await guest.desks.open(run)
        except (NotFound, Unsupported, LimitExceeded):  # a guest from before there were desks
            yield given
            return
        key, number = await self._tokens(), task.conversation.run
        token = token_of(key, task.id, task.sandbox_id, number)
        mask = given.mask.plus({token: f"({TOKEN})"})
        seat = _Seat(task.id, task.sandbox_id, number, key, mask)
        attending = asyncio.create_task(self._attend(seat, guest, run), name=f"desk of {run}")
        try:
            yield replace(given, brief=_laid(given, token, f"http://127.0.0.1:{port}"), mask=mask)
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
        with suppress(PaddockError):
            await guest.desks.close(run)

    async def _tokens(self) -> bytes:
        """What tokens are made with: the installation's, for good."""
        if not self._key:
            made = secrets.token_hex(32)
            kept = await self._store.write(lambda tx: tx.values.add(_KEY, made))
            self._key = bytes.fromhex(str(kept))
        return self._key

    async def _attend(self, seat: _Seat, guest: TransferGuest, run: str) -> None:
        after = 0
        while True:
            try:
                for call in await guest.desks.take(run, after, wait_s=_WAIT_S):
                    reply = await self._answer(seat, call)
                    body = b"" if reply.body is None else json.dumps(reply.body).encode()
                    await guest.desks.answer(run, call.id, reply.status, body)
                    after = call.number
            except NotFound:
                return  # its run is over
            except PaddockError:  # it is away, or stands still; its run's follower sees to that
                await asyncio.sleep(_PAUSE_S)

    async def _answer(self, seat: _Seat, call: DeskCall) -> _Reply:
        try:
            self._check(seat, call)
            return await self._acted(seat, call)
        except PaddockError as error:
            status = _STATUS.get(type(error), 503 if error.retryable else 500)
            return _Reply(status, {"error": error.as_dict()})
        except Exception:  # noqa: BLE001 - a call that finds a fault of ours ends no desk
            _log.exception("desk not answered", extra={"task": seat.task_id})
            return _Reply(500, {"error": {"code": "internal", "message": "the desk has failed"}})

    def _check(self, seat: _Seat, call: DeskCall) -> None:
        kind, _, offered = call.headers.get("authorization", "").partition(" ")
        check_token(
            seat.key,
            offered.strip() if kind.lower() == "bearer" else "",
            task_id=seat.task_id,
            sandbox_id=seat.sandbox_id,
            run=seat.run,
        )

    async def _acted(self, seat: _Seat, call: DeskCall) -> _Reply:
        path = call.path.rstrip("/")
        if call.method == "GET" and not path:
            return _Reply(200, _USAGE)
        if call.method != "POST":
            return _Reply(405, {"error": {"code": "invalid_request", "message": "POST is meant"}})
        if path == "/mcp":
            return await self._as_mcp(seat, call)
        if path not in ("/ask", "/progress", "/verdict"):
            raise NotFound(f"there is no {call.path[:80]} at this desk", remediation="see GET /")
        try:
            given = json.loads(call.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"this is not JSON: {error}"[:200]) from error
        wanted = read(path[1:], seat.mask.told(given))
        return _Reply(200, await self._do(seat, wanted, call.id))

    async def _as_mcp(self, seat: _Seat, call: DeskCall) -> _Reply:
        wanted = mcp.understood(call.body)
        if wanted is None:
            return _Reply(202)
        if not isinstance(wanted, mcp.ToolCall):
            return _Reply(200, wanted)
        try:
            said = read(wanted.verb, seat.mask.told(wanted.given))
            done = await self._do(seat, said, call.id)
        except PaddockError as error:
            return _Reply(200, mcp.answered(wanted, str(error), is_error=True))
        return _Reply(200, mcp.answered(wanted, str(done["message"])))

    async def _do(self, seat: _Seat, wanted: Wanted, once: str) -> Mapping[str, Any]:
        def write(tx: Transaction) -> Mapping[str, Any]:
            task = tx.tasks.get(ANY_TEAM, seat.task_id)
            is_over = task is None or task.state.is_final or task.conversation.has_ended
            if task is None or is_over or task.conversation.run != seat.run:
                raise Unauthenticated("the run that this token was for has ended")
            if isinstance(wanted, Ask):
                asked = self._questions.ask(tx, task, wanted, once=once)
                return {"id": asked.id, "state": asked.state, "message": _ON_RECORD}
            if isinstance(wanted, Progress):
                return self._progressed(tx, task, wanted)
            return self._claimed(tx, task, wanted)

        seat.pace.take(self._clock.now())  # before anybody else has to wait for it
        return await self._store.write(write)

    def _progressed(self, tx: Transaction, task: TaskRecord, said: Progress) -> Mapping[str, Any]:
        now = self._clock.wall()
        if task.progress is not None and 0 <= now - task.progress.at < _EVERY_S:
            raise LimitExceeded("that is too often", remediation="once a second is enough")
        data = {"text": said.text, "percent": said.percent}
        append_within(tx, [note(task, EventKind.TASK_PROGRESS, now, data)])
        tx.tasks.replace(replace(task, progress=replace(said, at=now)))
        return {"message": "It is told."}

    def _claimed(self, tx: Transaction, task: TaskRecord, said: Claim) -> Mapping[str, Any]:
        now = self._clock.wall()
        others = [each for each in task.claims if each.name != said.name]
        if len(others) >= MOST_CLAIMS:
            raise LimitExceeded(f"{MOST_CLAIMS} checks were spoken of, which is the most")
        kept = (*others, replace(said, at=now))
        same = {(each.name, each.passed, each.detail) for each in task.claims}
        if (said.name, said.passed, said.detail) not in same:
            told = task.claims_told.once_more(task.conversation.run)
            data = {"name": said.name, "passed": said.passed, "detail": said.detail}
            append_within(tx, [note(task, EventKind.TASK_VERDICT, now, data)])
            tx.tasks.replace(replace(task, claims=kept, claims_told=told))
        return {"message": "It is kept as your word; the task's own checks run in any case."}


def _laid(given: Setting, token: str, url: str) -> Brief:
    """The agent finds it by its environment; one that takes tools has it as one of them."""
    brief = given.brief
    taken = {each.name for each in brief.tools}
    name = "paddock" if "paddock" not in taken else "paddock_task"
    desk = ToolServer(name, url=f"{url}/mcp", token_variable=TOKEN)
    tools = (*brief.tools, desk) if given.agent.traits.tools else brief.tools
    return replace(brief, env={**brief.env, URL: url, TOKEN: token}, tools=tools)
