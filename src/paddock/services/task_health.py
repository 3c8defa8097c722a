"""After the checks: the app that an agent worked at is started anew where it has to be, and looked
at until it is well or its time is up."""

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from paddock.domain.app_health import PRESETS, HealthWish, Web
from paddock.domain.app_verdict import (
    ABSENT,
    AppHealth,
    WebSeen,
    WorkerSeen,
    answers_well,
    asset_fails,
    build_of,
    health_again,
)
from paddock.domain.broker.masking import Mask
from paddock.domain.error_page import error_in, shortened
from paddock.domain.errors import Conflict, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord
from paddock.domain.task import Phase, TaskRecord
from paddock.domain.task_rounds import Checked
from paddock.guest_client.processes import Process, Processes, ProcessState
from paddock.ports.clock import Clock
from paddock.ports.dialer import Dialer
from paddock.ports.provider import Ref
from paddock.services.app_restarts import changed_files, start_anew
from paddock.services.providers import Providers
from paddock.services.task_events import note
from paddock.services.task_hold import Hold
from paddock.services.task_moves import Moves
from paddock.services.task_workspace import Workspaces
from paddock.services.web_probe import Answer, Connect, NoAnswer, get

_POLL_S = 0.5
_ANSWER_S, _LAST_ANSWER_S = 10.0, 5.0
_STEADY_S = 2.0
"""One that runs for so long has started; one that ends at once runs for a moment, too."""
_DOWN = (ProcessState.GAVE_UP, ProcessState.BACKOFF)
_MOVING = (ProcessState.RUNNING, ProcessState.BACKOFF)
_SHOWN = 20


def step_of(run: int) -> str:
    """The journal's name for what was found after a run."""
    return f"{Phase.HEALTH_CHECK}.{run}"


class AppHealths:
    """The same for every task."""

    def __init__(
        self, clock: Clock, workspaces: Workspaces, *, providers: Providers, dial: Dialer
    ) -> None:
        self._clock = clock
        self._workspaces = workspaces
        self._providers = providers
        self._dial = dial

    async def look(
        self, hold: Hold, moves: Moves, wish: HealthWish, checks: Sequence[Checked]
    ) -> AppHealth:
        """Once for each run of the agent; what is started anew is, too, whoever dies meanwhile."""
        run = hold.task.conversation.run
        again = await moves.phase(
            hold,
            Phase.HEALTH_CHECK,
            lambda: self._restart(hold.task, wish),
            step=f"restarts.{run}",
        )

        async def see() -> dict[str, Any]:
            found = await self._see(hold.task, wish)
            return asdict(replace(found, build=build_of(wish, checks), **again))

        got = await moves.phase(hold, Phase.HEALTH_CHECK, see, step=step_of(run), tell=self._told)
        return health_again(got)

    def _told(self, task: TaskRecord, got: dict[str, Any]) -> list[Event]:
        data = health_again(got).told()
        return [note(task, EventKind.TASK_HEALTH, self._clock.wall(), data)]

    async def _restart(self, task: TaskRecord, wish: HealthWish) -> dict[str, Any]:
        """What reads a changed file only when it starts, and what was given up: the agent may have
        put right what it died of."""
        if not wish.processes:
            return {}
        async with self._workspaces.enter(task) as entered:
            files: list[str] = []
            if wish.restart and wish.globs:
                files = await changed_files(task, entered.guest, self._left(task))
            changed = await asyncio.to_thread(wish.config_in, files)  # there may be many
            known = {each.name: each for each in await entered.guest.processes.list()}
            wanted = [
                name
                for name in wish.processes
                if name in known and ((changed and name in wish.restart) or _is_down(known[name]))
            ]
            processes, left = entered.guest.processes, self._left(task)
            restarted, refused = await start_anew(processes, wanted, left)
            mask = await self._workspaces.masks.of(task, entered.sandbox)
        return {
            "restarted": restarted,
            "unstarted": [shortened(mask.text(each)) for each in refused],
            "changed": changed[:_SHOWN],
            "missing": [name for name in wish.restart if name not in {*known, *wish.workers}],
        }

    def _left(self, task: TaskRecord) -> float | None:
        return None if task.deadline is None else task.deadline - self._clock.wall()

    async def _see(self, task: TaskRecord, wish: HealthWish) -> AppHealth:
        began = time.monotonic()
        async with self._workspaces.enter(task) as entered:
            mask = await self._workspaces.masks.of(task, entered.sandbox)
            until = began + wish.time_for(task.deadline, self._clock.wall())
            web = await _web(self._way_to(entered.sandbox), wish.web, until, mask)
            workers = await _workers(entered.guest.processes, wish.workers, until)
        seconds = round(time.monotonic() - began, 3)
        return AppHealth(web=web, workers=workers, seconds=seconds)

    def _way_to(self, sandbox: SandboxRecord) -> Connect:
        """As previews go."""

        async def connect(port: int) -> socket.socket:
            provider = self._providers.get(sandbox.provider)
            try:
                found = await provider.endpoint(Ref(sandbox.provider, sandbox.ref), port)
            except PaddockError as error:
                if error.retryable or isinstance(error, Conflict):
                    raise  # of the sandbox: whoever moves the task on looks after it
                raise NoAnswer(f"there is no way to it: {error.message}") from error
            return await self._dial(found)

        return connect


def _is_down(process: Process) -> bool:
    """Nobody wanted it to end."""
    return process.wanted and process.state in _DOWN


async def _web(connect: Connect, web: Web | None, until: float, mask: Mask) -> WebSeen | None:
    """Looked at until it is well."""
    while web is not None:
        seen = await _look_at(connect, web, until, mask)
        if seen.is_well or until - time.monotonic() <= _POLL_S:
            return seen
        await asyncio.sleep(_POLL_S)
    return None


async def _look_at(connect: Connect, web: Web, until: float, mask: Mask) -> WebSeen:
    try:
        answer = await get(connect, web.port, web.path, _patience(until))
    except NoAnswer as error:
        return WebSeen(web.port, web.path, error=shortened(mask.text(str(error))))
    seen = WebSeen(web.port, web.path, answer.status)
    if not answers_well(answer.status):
        return replace(seen, error=_complaint(web.path, answer, mask))
    for path in PRESETS[web.preset].assets:
        with suppress(NoAnswer):  # the page has answered: its server is there
            asset = await get(connect, web.port, path, _patience(until))
            if asset_fails(asset.status):
                return replace(seen, error=_complaint(path, asset, mask))
    return seen


def _patience(until: float) -> float:
    """The last look has some time too: of a busy machine it says more than that it was busy."""
    return min(_ANSWER_S, max(until - time.monotonic(), _LAST_ANSWER_S))


def _complaint(path: str, answer: Answer, mask: Mask) -> str:
    # Of a value that was cut off nothing is shown either.
    cut = mask.beginning_at_end(answer.body) if answer.is_cut else 0
    body = answer.body[: len(answer.body) - cut].decode("utf-8", "replace")
    said = error_in(mask.text(body))
    return shortened(mask.text(f"{path} answers {answer.status}{': ' if said else ''}{said}"))


async def _workers(
    processes: Processes, names: Sequence[str], until: float
) -> tuple[WorkerSeen, ...]:
    """Looked at until each has run for a moment, or does not start by itself any more."""
    began: dict[str, tuple[int | None, float]] = {}
    until = max(until, time.monotonic() + 2 * _STEADY_S)
    while names:
        known = {each.name: each for each in await processes.list()}
        now = time.monotonic()
        for name in names:
            pid = known[name].pid if name in known else None
            if name not in began or began[name][0] != pid:
                began[name] = (pid, now)
        young = [name for name in names if now - began[name][1] < _STEADY_S]
        moving = [name for name in names if name in known and known[name].state in _MOVING]
        if now >= until or not any(name in young or _waits(known[name]) for name in moving):
            return tuple(_seen(name, known.get(name), is_young=name in young) for name in names)
        await asyncio.sleep(_POLL_S)
    return ()


def _waits(process: Process) -> bool:
    return process.state is ProcessState.BACKOFF


def _seen(name: str, process: Process | None, *, is_young: bool) -> WorkerSeen:
    if process is None:
        return WorkerSeen(name, ABSENT)
    # It starts again and again: that it runs just now says nothing.
    is_turning = is_young and process.state is ProcessState.RUNNING
    state = ProcessState.BACKOFF if is_turning else process.state
    return WorkerSeen(name, state, process.last_exit_code)
