"""An agent at work in a sandbox, followed by whoever holds its task.

It is never held: the guest runs it, and keeps what it writes until that is on record here. Whoever
is killed while following leaves nothing behind; the next one reads on where the record ends.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from paddock.domain import conversation as talks
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.conversation import Conversation
from paddock.domain.errors import Conflict, NotFound, TimedOut, Unavailable
from paddock.domain.message import Mode
from paddock.domain.reason import Reason
from paddock.domain.task import TaskRecord, TaskState
from paddock.guest_client.runs import Chunk, Gap, RunExit, Told
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.ports.tasks import Output
from paddock.services import task_mail, task_pause
from paddock.services.quotas import append_within, has_event_room
from paddock.services.task_events import agent_events
from paddock.services.task_hold import Hold
from paddock.services.task_pace import WAIT_S, Marks, patience, takes_too_long
from paddock.services.task_post import Mail, Post, Setting
from paddock.services.task_reading import (
    MOST_RAW,
    Steps,
    apart,
    bounded,
    cut_at_end,
    read_errors,
    read_lines,
    spent_of,
    unread,
)
from paddock.services.task_watch import Watch, Watching

_PAUSE_S = 0.05
_LINGER_S = 10.0
"""How long one that has nothing left to do may take to end."""
_LONGEST_S = 14 * 86_400.0
"""In the guest, for the case that nobody ever comes back: it may wait for people meanwhile."""
_READ_OUT_S = 5.0
"""How long the output of an agent that was made to end is read on. What it wrote by then may be
more than can be read in time: the rest is left out, so that its task ends."""
_LOG_CAP = 32 << 20
_ACK_EVERY = 1 << 20
_NO_MAIL = Mail()
MOST_OPEN = 1024
"""Answers that an agent waits for at the same time."""
_SHOWS = frozenset({AgentEventKind.MESSAGE, AgentEventKind.TOOL_CALL, AgentEventKind.COMPLETED})
"""That it has read what it was begun with."""


class AgentRun:
    """One run of an agent, as its follower sees it."""

    def __init__(
        self, store: Store, clock: Clock, hold: Hold, setting: Setting, *, watching: Watching
    ) -> None:
        self._store = store
        self._clock = clock
        self._hold = hold
        self._agent = setting.agent
        self._guest = setting.guest
        self._brief = setting.brief
        self._files = setting.files
        self._mask = setting.mask
        self._runs = setting.guest.runs
        self._closes_input = setting.agent.launch(setting.brief).closes_input
        self._partial = b""
        self._acked = 0
        self._forced_at: float | None = None
        self._beats_at = clock.wall()
        self._health = watching.config.health
        self._is_set_aside = watching.is_set_aside
        self._watch = Watch(watching, clock, hold, hands=self, home=setting.brief.home)
        self._post = Post(clock, hold, setting, keep=self._keep)
        self._lingers_until: float | None = None

    @property
    def _conversation(self) -> Conversation:
        return self._hold.task.conversation

    @property
    def _marks(self) -> Marks:
        return Marks(
            self._beats_at,
            self._health.polite_s,
            self._lingers_until,
            is_forced=self._forced_at is not None,
            is_deaf=self._post.is_deaf,
            mail_due_at=self._post.due_at,
        )

    @property
    def _key(self) -> str:
        return self._conversation.run_key(self._hold.task.id)

    async def attend(self, news: asyncio.Event) -> None:
        """Until it has ended, and that is on record. `news`: a message, or somebody's wish."""
        was_started = self._conversation.is_started
        await self._start()
        if self._hold.task.state is TaskState.WAITING:
            await self.hold_still()
        elif was_started:
            await self.go_on()  # who had written that down may have died before it was done
        if not self._conversation.has_ended:
            # First what it has done meanwhile: it may have ended in time while nobody looked.
            await self._take(await self._read(0.0))
        reading: asyncio.Task[Told] | None = None
        try:
            while not self._conversation.has_ended:
                if news.is_set():
                    news.clear()
                    await self._hear_people()
                await self._press()
                await self._hand_over()
                await self._beat()
                reading = reading or asyncio.create_task(self._read())
                if await self._waited(reading, news):
                    told, reading = reading.result(), None
                    await self._take(told)
        finally:
            if reading is not None:
                reading.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await reading
            await self._watch.aclose()
        await self._runs.ack(self._key)

    async def _start(self) -> None:
        """Begun once, however often this is asked for."""
        conversation = self._conversation
        try:
            await self._runs.get(self._key)
        except NotFound:
            if conversation.is_started:
                # Another guest is there now, or another disk: what ran, runs no more.
                await self._end(RunExit(-1, Reason.PROVIDER_LOST, 0.0, 0.0, 0.0, 0))
                return
            await self._launch()
        if not conversation.is_started:
            await self._keep(replace(self._conversation, is_started=True))

    async def _launch(self) -> None:
        launch = self._agent.launch(self._brief)
        for file in (*self._files, *launch.files):
            await self._guest.files.write(file.path, file.data)
            mode = f"{file.mode:o}"
            await self._guest.exec(("chmod", mode, "--", file.path), timeout=30.0)
        await self._runs.start(
            self._key,
            launch.argv,
            cwd=self._brief.cwd,
            env={**self._brief.env, **launch.env},
            keep_stdin_open=True,
            timeout=_LONGEST_S,
            log_cap=_LOG_CAP,
        )

    async def _read(self, wait_s: float = WAIT_S) -> Told:
        places = self._conversation.offsets
        offsets = {
            "stdout": places.get("stdout", 0) + len(self._partial),
            "stderr": places.get("stderr", 0),
        }
        while True:
            try:
                return await self._runs.read(self._key, offsets, wait_s=wait_s)
            except TimedOut:
                await asyncio.sleep(_PAUSE_S)  # nobody answers while the sandbox is held still

    async def _waited(self, reading: "asyncio.Task[Told]", news: asyncio.Event) -> bool:
        """Until there is something to read, which is the answer, or something else to do."""
        woken = asyncio.create_task(news.wait())
        try:
            wait_s = patience(self._hold.task, self._marks, self._clock.wall())
            await asyncio.wait({reading, woken}, timeout=wait_s, return_when="FIRST_COMPLETED")
        finally:
            woken.cancel()
        return reading.done()

    async def _hear_people(self) -> None:
        """What they have sent, and whether they want it to end."""
        task = await self._hold.refresh()
        if task.is_cancelled and self._conversation.stopping_since is None:
            if await self._is_set_aside(task):
                # Asked to end, it would go on until it has; it is ended when that is opened.
                raise Unavailable(f"sandbox {task.sandbox_id} was set aside")
            await self.go_on()
            await self.stop(None)
        await self._watch.answer()
        await self._pause_if_wanted()
        conversation = self._conversation
        if conversation.is_closing or conversation.stopping_since is not None:
            return
        await self._post.hear()

    async def _pause_if_wanted(self) -> None:
        talk = self._conversation
        if self._hold.task.paused_by and talk.stopping_since is None and not talk.must_stop:
            now = self._clock.wall()
            task = await self._hold.change(lambda tx, at: task_pause.carried_out(tx, at, now))
            if task.state is TaskState.WAITING:
                await self.hold_still()

    @property
    def modes(self) -> frozenset[Mode]:
        return self._agent.traits.modes

    async def stop(self, why: Reason | None, detail: str = "") -> None:
        """Politely; what is not over after a while is ended by force."""
        talk = self._agent.stop(self._conversation.talk)
        now = self._clock.wall()
        stopped = talks.stopped(self._conversation, talk, now, (why, detail))
        await self._keep(stopped, talk.events)

    async def begin_again(self, why: str) -> None:
        """It stands still, so there is nobody to ask: its end is the beginning of the next run."""
        if self._conversation.stopping_since is not None:
            return
        again = replace(self._conversation, must_restart=True, must_stop=True, stop_detail=why)
        await self._keep(again)

    async def hold_still(self) -> None:
        """Nothing of it is lost, and it does nothing more."""
        with suppress(Conflict, NotFound):
            await self._runs.signal(self._key, "SIGSTOP")

    async def go_on(self) -> None:
        with suppress(Conflict, NotFound):
            await self._runs.signal(self._key, "SIGCONT")

    async def _beat(self) -> None:
        now = self._clock.wall()
        if now >= self._beats_at and not self._conversation.has_ended:
            self._beats_at = now + self._watch.every_s
            await self._watch.beat(self._guest)

    async def _press(self) -> None:
        """What has to end, ends."""
        conversation, task, now = self._conversation, self._hold.task, self._clock.wall()
        is_late = task.deadline is not None and now >= task.deadline
        is_late = is_late and task.state is TaskState.RUNNING
        if is_late and conversation.stopping_since is None:
            await self.stop(Reason.DEADLINE)
            return
        await self._close_when_over()
        too_long = takes_too_long(conversation, self._marks, now)
        if (too_long or conversation.must_stop) and self._forced_at is None:
            self._forced_at = now
            with suppress(Conflict, NotFound):  # it has ended meanwhile
                grace_s = self._health.force_s if too_long else self._health.deaf_s
                await self._runs.end(self._key, grace_s)

    async def _close_when_over(self) -> None:
        """An agent that has nothing left to do and nothing waiting for it may go."""
        conversation = self._conversation
        if conversation.is_over and not conversation.is_closing and not conversation.outbox:

            def close(tx: Transaction, current: TaskRecord) -> TaskRecord:
                # Together, so that no message falls between: what comes later is the next run's.
                if task_mail.waiting(tx, current.id, self._clock.wall()):
                    return current
                closing = replace(current.conversation, is_closing=True)
                return replace(current, conversation=closing)

            await self._hold.change(close)
        if self._conversation.is_closing and self._lingers_until is None:
            self._lingers_until = self._clock.wall() + _LINGER_S
            with suppress(Conflict, NotFound):
                await self._runs.close_input(self._key)
            if self._hold.task.waits_for:
                await self.go_on()  # it needs no answer to end

    async def _hand_over(self) -> None:
        """What the agent is to be told; whoever is told nothing more may begin."""
        await self._post.expire()
        await self._post.deliver()
        if self._closes_input and not self._conversation.outbox:
            self._closes_input = False
            with suppress(Conflict, NotFound):
                await self._runs.close_input(self._key)
        await self._post.look_into_inbox()

    async def _take(self, told: Told) -> None:
        await self._post.expire()  # before what it wrote makes a turn of what is too late
        for part in apart(told):
            if part.output and self._reads_too_long:
                return await self._leave_out_rest()
            await self._take_part(part)
            if told.exit is None:
                await self._press()  # one that writes without end does not outrun its deadline
        return await self._check_demands()

    @property
    def _reads_too_long(self) -> bool:
        forced = self._forced_at
        longest_s = self._health.force_s + _READ_OUT_S
        return forced is not None and self._clock.wall() >= forced + longest_s

    async def _leave_out_rest(self) -> None:
        """Skip to the end of the output of one that was made to end."""
        run = await self._runs.get(self._key)
        offsets = {name: each.end for name, each in run.streams.items()}
        size = offsets["stdout"] - self._conversation.offsets.get("stdout", 0)
        self._partial = b""
        skipped = replace(self._conversation, offsets=offsets, is_skipping=False)
        await self._keep(skipped, notes=(unread(size),))
        # While its log is full, its last words are on their way there, and it has not ended.
        await self._runs.ack(self._key, offsets)

    async def _take_part(self, told: Told) -> None:
        """What it wrote, with all that follows from it, in one transaction."""
        before = self._conversation
        conversation = read_errors(before, told, self._mask)
        start = before.offsets.get("stdout", 0)
        for stream, item in told.output:
            if stream == "stdout" and isinstance(item, Chunk):
                self._partial += item.data
            elif stream == "stdout" and isinstance(item, Gap):
                # What is not there any more, and the line that it was in.
                self._partial, start = b"", item.end
        is_last = told.exit is not None
        lines, raw = read_lines(
            self._partial, self._mask, is_skipping=before.is_skipping, is_last=is_last
        )
        steps = Steps(self._agent, conversation, self._mask)
        for line in lines.lines:
            steps.hear(line)
        self._partial = self._partial[lines.length :]
        offsets = {**steps.conversation.offsets, "stdout": start + len(raw)}
        conversation = replace(
            steps.conversation,
            offsets=offsets,
            is_skipping=lines.is_skipping,
            raw=before.raw + len(raw),
        )
        output = Output(self._hold.task.id, before.run, "stdout", start, raw) if raw else None
        mail = Mail(steps.delivered, steps.seen)
        await self._keep(conversation, tuple(steps.events), mail, output=output)
        if told.exit is not None:
            await self._post.look_into_inbox()
            await self._end(told.exit)
        elif sum(offsets.values()) - self._acked >= _ACK_EVERY:
            self._acked = sum(offsets.values())
            await self._runs.ack(self._key, offsets)

    async def _check_demands(self) -> None:
        """One that wants to be answered without end would be the only one who is."""
        if len(self._conversation.outbox) > MOST_OPEN and self._conversation.why_stopped is None:
            flooded = replace(self._conversation, outbox=(), must_stop=True)
            await self._keep(flooded)
            await self.stop(Reason.EVICTED, f"the agent asked for more than {MOST_OPEN} answers")

    async def _end(self, exit_: RunExit) -> None:
        is_lost = exit_.reason is Reason.PROVIDER_LOST
        code = None if is_lost else exit_.exit_code
        talk = self._agent.end(self._conversation.talk, code, self._conversation.errors)
        conversation = talks.stepped(self._conversation, talk)
        cut = cut_at_end(self._conversation)
        await self._keep(talks.ended(conversation, code, is_lost=is_lost), talk.events, notes=cut)

    async def _keep(
        self,
        conversation: Conversation,
        events: Sequence[AgentEvent] = (),
        mail: Mail = _NO_MAIL,
        *,
        output: Output | None = None,
        notes: Sequence[AgentEvent] = (),
    ) -> None:
        """`notes` say what is not kept: they count as no events of the agent."""
        now = self._clock.wall()
        if conversation.opening and any(each.kind in _SHOWS for each in events):
            mail = replace(mail, seen=(*mail.seen, *conversation.opening))
            conversation = replace(conversation, opening=())
        conversation = talks.paced(conversation, events, now)
        told = [*notes, *bounded(events, self._conversation.events)]
        task = replace(self._hold.task, conversation=conversation)

        def change(tx: Transaction, current: TaskRecord) -> TaskRecord:
            mail.write(tx, current.id, now)
            room = max(0, MOST_RAW - current.conversation.raw)
            if output is not None and room and has_event_room(tx, task.team_id, task.id):
                tx.outputs.add(replace(output, data=output.data[:room]))
            append_within(tx, agent_events(task, told, now))
            turns = conversation.turns - current.conversation.turns
            spent = current.spent.plus(spent_of(events, turns))
            changed = replace(current, conversation=conversation, spent=spent)
            return self._watch.judged(changed, events) if events else changed

        await self._hold.change(change)
        if events:
            await self._watch.carry_out(events[-1])
