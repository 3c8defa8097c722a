"""A real agent of some adapter, on this host: what `services.task_agents` does, without a sandbox.

As there, what an adapter keeps goes through JSON after every step, what it says is passed on once,
and its input is closed as soon as it has nothing left to do.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddock.domain.agent import Brief, Door, Launch, Say, Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.message import Message, Mode
from paddock.ports.agent import Agent
from tests.testing.models.agents import Place

_TAIL = 4000
_LONGEST_LINE = 64 << 20


def brief_for(place: Place, program: Path | str, prompt: str, **more: Any) -> Brief:
    """With all that the task's machinery would fill in."""
    where = {"cwd": str(place.workspace), "home": str(place.home)}
    return Brief(prompt=prompt, program=str(program), **{"key": "run-1", **where, **more})


def message(text: str, mode: Mode, message_id: str = "msg_1") -> Message:
    return Message(message_id, "team", "task", text, mode, "tester", 0.0)


@dataclass
class Driven:
    """One run of an agent, as far as it has come."""

    agent: Agent
    place: Place
    process: asyncio.subprocess.Process
    talk: Talk = field(default_factory=Talk)
    closes_input: bool = False
    events: list[AgentEvent] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    session: str = ""
    then: str = ""
    put: int = 0
    exit_code: int | None = None
    stderr: bytes = b""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def of(self, kind: AgentEventKind) -> list[dict[str, Any]]:
        return [dict(event.data) for event in self.events if event.kind is kind]

    def total(self, name: str) -> float:
        """Of all that was used."""
        return sum(data.get(name, 0) for data in self.of(AgentEventKind.USAGE))

    async def tell(self, told: Message) -> None:
        await self._take(self.agent.tell(self.talk, told))

    async def stop(self) -> None:
        await self._take(self.agent.stop(self.talk))

    async def until(self, fits: Callable[["Driven"], object], timeout_s: float = 30) -> None:
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(lambda: fits(self))

    async def until_kind(self, kind: AgentEventKind, count: int = 1) -> None:
        await self.until(lambda driven: len(driven.of(kind)) >= count)

    async def finished(self, timeout_s: float = 60) -> "Driven":
        await self.until(lambda driven: driven.exit_code is not None, timeout_s)
        return self

    async def follow(self, begun: Talk) -> None:
        """An agent that writes before it has read all of a long prompt is not stuck."""
        assert self.process.stderr is not None
        async with asyncio.TaskGroup() as group:
            errors = group.create_task(self.process.stderr.read())
            group.create_task(self._begin(begun))
            watching = group.create_task(self._watch())
            await group.create_task(self._listen())
            watching.cancel()
        self.stderr = errors.result()
        code = await self.process.wait()
        await self._take(self.agent.end(self.talk, code, self.stderr.decode()[-_TAIL:]))
        async with self.changed:
            self.exit_code = code
            self.changed.notify_all()

    @property
    def inbox(self) -> Path:
        return _inbox(self.place)

    async def _begin(self, begun: Talk) -> None:
        await self._act(begun)
        if self.closes_input:
            assert self.process.stdin is not None
            self.process.stdin.close()

    async def _watch(self) -> None:
        """What the agent has taken out of its inbox is delivered."""
        known = set(os.listdir(self.inbox / "cur"))
        while True:
            for name in sorted(set(os.listdir(self.inbox / "cur")) - known):
                known.add(name)
                taken = name.partition(".")[2]
                self.delivered.append(taken)
                await self._take(self.agent.taken(self.talk, taken))
            await asyncio.sleep(0.02)

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line)
            await self._take(self.agent.hear(self.talk, line.rstrip(b"\n")))

    async def _take(self, talk: Talk) -> None:
        self.talk = replace(talk, state=json.loads(json.dumps(talk.state)))
        await self._act(talk)

    async def _act(self, talk: Talk) -> None:
        for event in talk.events:
            json.dumps(event.data, allow_nan=False)
        for say in talk.says:
            await self._say(say)
        async with self.changed:
            self.events += talk.events
            self.delivered += talk.delivered
            self.seen += talk.seen
            self.session = talk.session or self.session
            self.then = talk.then or self.then
            self.changed.notify_all()
        if talk.is_over:
            assert self.process.stdin is not None
            self.process.stdin.close()
        if talk.must_stop:
            _kill(self.process)

    async def _say(self, say: Say) -> None:
        assert self.process.stdin is not None
        if say.door is Door.INBOX:
            self.put += 1
            part = self.inbox / "tmp" / "part"
            part.write_bytes(say.data)
            part.rename(self.inbox / "new" / f"{self.put:08d}.{say.message}")
            return
        with suppress(ConnectionError):
            self.process.stdin.write(say.data)
            await self.process.stdin.drain()


@asynccontextmanager
async def driving(
    agent: Agent, brief: Brief, place: Place, keys: dict[str, str] | None = None
) -> AsyncIterator[Driven]:
    """`keys` are the variables that a sandbox has from its secrets."""
    launch = agent.launch(brief)
    process = await _started(launch, place, keys or {})
    begun = agent.begin(brief)
    driven = Driven(agent, place, process, begun, launch.closes_input)
    following = asyncio.create_task(driven.follow(begun))
    try:
        yield driven
    finally:
        _kill(process)
        async with asyncio.timeout(10):
            await following


async def drive(
    agent: Agent, brief: Brief, place: Place, keys: dict[str, str] | None = None
) -> Driven:
    """From its start to its end."""
    async with driving(agent, brief, place, keys) as driven:
        return await driven.finished()


async def _started(
    launch: Launch, place: Place, keys: dict[str, str]
) -> asyncio.subprocess.Process:
    for placed in launch.files:
        path = Path(placed.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(placed.data)
        path.chmod(placed.mode)
    for name in ("tmp", "new", "cur"):
        (_inbox(place) / name).mkdir(parents=True, exist_ok=True)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *launch.argv,
        env=place.environment(**{**keys, **launch.env, "PADDOCK_INBOX": str(_inbox(place))}),
        cwd=place.workspace,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        limit=_LONGEST_LINE,
        start_new_session=True,
    )


def _inbox(place: Place) -> Path:
    return place.home.parent / "inbox"


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
