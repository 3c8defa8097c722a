"""A task from its beginning to its end: one step after the other, each done once.

Whoever holds it calls this, after a restart too: what the journal has is not done again, and the
agent, which went on meanwhile, is taken up where the record ends.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from paddock.domain import conversation as talks
from paddock.domain import vitals as signs
from paddock.domain.agent import WorkMode
from paddock.domain.conversation import Conversation, Stage
from paddock.domain.errors import Conflict, NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord
from paddock.domain.task import (
    Phase,
    TaskRecord,
    TaskState,
    check_after,
    moved,
    with_restarted_timeout,
)
from paddock.domain.task_course import Next, Step, after_run
from paddock.domain.task_loss import step_after
from paddock.domain.task_review import agent_at, first_stage
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services import task_mail
from paddock.services.changes import Changes
from paddock.services.providers import Providers
from paddock.services.task_agents import AgentRun
from paddock.services.task_asking import Asking
from paddock.services.task_desk import TaskDesks
from paddock.services.task_ending import Endings
from paddock.services.task_events import note, state_event
from paddock.services.task_health import AppHealths
from paddock.services.task_hold import Change, Hold
from paddock.services.task_judging import Judging
from paddock.services.task_modes import Modes
from paddock.services.task_moves import Cancelled, GivenUp, Moves
from paddock.services.task_pause import Pausing, ask_no_more
from paddock.services.task_post import Setting, TooLate
from paddock.services.task_replacing import Replacing
from paddock.services.task_reviews import Reviews
from paddock.services.task_reviving import Reviving
from paddock.services.task_setting import AgentSettings, Given, in_full
from paddock.services.task_watch import Watching
from paddock.services.task_workspace import ASLEEP, Place, Workspaces, give_files
from paddock.services.wakes import Wakes

_WAKES = 10
_OF_THE_AGENT = (Reason.AGENT_ERROR, Reason.NO_OUTPUT)
"""What it may do better when it tries again."""


class TaskRun:
    """Moves tasks on; the same for every one."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        changes: Changes,
        workspaces: Workspaces,
        settings: AgentSettings,
        wakes: Wakes,
        watching: Watching,
        desks: TaskDesks,
        apps: AppHealths,
        providers: Providers,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._workspaces = workspaces
        self._settings = settings
        self._wakes = wakes
        self._watching = watching
        self._pausing = Pausing(clock, wakes)
        self._moves = Moves(clock, wakes, watching.approvals)
        self._judging = Judging(clock, workspaces, self._moves, apps)
        self._modes = Modes(clock, workspaces)
        self._reviews = Reviews(clock, workspaces)
        self._replacing = Replacing(clock, providers, self._moves, watching)
        config = watching.config
        self._reviving = Reviving(clock, workspaces, providers, changes=changes, config=config)
        self._asking = Asking(clock)
        self._endings = Endings(
            clock,
            workspaces,
            moves=self._moves,
            modes=self._modes,
            force_s=config.health.force_s,
        )
        self.give_up = self._endings.give_up
        self._desks = desks

    async def __call__(self, hold: Hold) -> None:
        """Until it is over, or cannot go on for now."""
        try:
            await self._to_its_end(hold)
        except PaddockError as error:
            if not error.passes or not await self._endings.end_regardless(hold, error):
                raise

    async def _to_its_end(self, hold: Hold) -> None:
        try:
            await self._go_on_awake(hold)
        except Cancelled:
            await self._endings.cancel(hold)
        except GivenUp as end:
            await self._moves.finish(hold, TaskState.FAILED, end.reason, end.why)
        except PaddockError as error:
            is_lost = await self._workspaces.is_lost(hold.task)
            if error.passes and not is_lost:
                if await self._reviving(hold):
                    return
                raise
            if isinstance(error, NotFound) and await self._replacing.begin_anew(hold):
                await self._workspaces.discard(hold.task)
            elif not is_lost:
                await self._endings.fail(hold, error)
            elif why := await self._replacing(hold):
                await self._endings.fail(hold, error, why)

    async def _go_on_awake(self, hold: Hold) -> None:
        """A sandbox that stopped under its task, because it crashed or had to make room, is started
        again: its disk is there, and the agent's session with it. Who stopped it meant it."""
        for _ in range(_WAKES):
            try:
                return await self._go(hold)
            except Conflict:
                sandbox = await self._workspaces.sandbox(hold.task)
                if sandbox is None or sandbox.state not in ASLEEP or sandbox.reason is Reason.USER:
                    raise
                await self._workspaces.wake(hold.task)
        return await self._go(hold)

    async def _go(self, hold: Hold) -> None:
        if hold.task.state is TaskState.PENDING:
            self._moves.check_wanted(hold)
            await self._check_before(hold.task)
            await self._moves.to(hold, TaskState.CREATING)
        if hold.task.state is TaskState.CREATING:
            await self._prepare(hold)
            await self._moves.to(hold, TaskState.RUNNING, phase=Phase.AGENT)
        await self._read_in_full(hold)
        while not hold.task.state.is_final:
            if hold.task.state is TaskState.COMPLETING:
                await self._complete(hold)
            else:
                await self._work(hold)

    async def _read_in_full(self, hold: Hold) -> None:
        """From here on its prompt is what its agent reads; on record stays what was wished."""
        if hold.task.wish.variables is not None and not hold.task.state.is_final:
            sandbox = await self._changes.find(hold.task.team_id, hold.task.sandbox_id)
            wish = in_full(hold.task, sandbox, hold.task.directory)
            hold.task = replace(hold.task, wish=wish)

    async def _check_before(self, task: TaskRecord) -> None:
        """It has its turn when what comes before is done, or never will be: that is its end."""
        states = await self._store.read(lambda tx: tx.tasks.states(task.wish.after))
        try:
            check_after(task.id, states)
        except Conflict as error:
            why = f"{error.message} ({error.remediation})"
            raise GivenUp(Reason.DEPENDENCY, why) from error

    async def _prepare(self, hold: Hold) -> None:
        """Everything before the agent."""
        workspace = hold.task.wish.workspace

        async def make() -> dict[str, str]:
            made = await self._workspaces.make(hold.task, workspace)
            return {"id": made.id, "provider": made.provider}

        await self._phase_here(
            hold,
            Phase.SANDBOX,
            make,
            lambda task, got: with_restarted_timeout(
                replace(task, sandbox_id=got["id"], provider=got["provider"]), self._clock.wall()
            ),
        )

        async def settle() -> dict[str, str]:
            return asdict(await self._workspaces.prepare(hold.task))

        await self._phase_here(
            hold,
            Phase.SETUP,
            settle,
            lambda task, place: replace(task, directory=place["directory"]),
        )
        if hold.task.went_back is not None:
            return  # what follows was done in what it was made of, and its agent has begun since
        await self._phase_here(hold, Phase.SYNC_IN, lambda: give_files(self._workspaces, hold.task))
        await self._phase_here(
            hold,
            Phase.CHECKPOINT,
            lambda: self._workspaces.checkpoint(hold.task),
            lambda task, commit: replace(task, checkpoint=commit),
        )

    async def _phase_here(
        self,
        hold: Hold,
        phase: Phase,
        do: Callable[[], Awaitable[Any]],
        change: Callable[[TaskRecord, Any], TaskRecord] = lambda task, _output: task,
    ) -> None:
        """Once in each sandbox that the task works in."""
        step = step_after(hold.task.losses, phase)
        await self._moves.phase(hold, phase, do, change, step=step)

    async def _work(self, hold: Hold) -> None:
        """One run of the agent, and what follows from how it ended."""
        if await self._pausing(hold):
            return
        agent = self._settings.agent(hold.task.at_work)
        conversation = hold.task.conversation
        if conversation.run == 0:
            self._moves.check_wanted(hold)
            await self._begin(hold, "", stage=first_stage(hold.task.wish))
        elif conversation.back_to is not None:
            self._moves.check_wanted(hold)
            resumes = agent.traits.resumes
            await self._begin(hold, await self._replacing.prompt(hold, resumes=resumes))
        elif conversation.has_ended and hold.task.state is TaskState.WAITING:
            approvals, now = self._watching.approvals, self._clock.wall()
            await ask_no_more(hold, approvals, agent.traits.modes, now)
        elif conversation.has_ended:
            now = self._clock.wall()
            mail = await self._store.read(lambda tx: task_mail.waiting(tx, hold.task.id, now))
            task = await hold.refresh()
            following = after_run(
                conversation,
                is_cancelled=task.is_cancelled,
                resumes=agent.traits.resumes,
                mail=[each.text for each in mail],
            )
            if (then := await self._asking.after(hold, following, mail)) is not None:
                await self._follow(hold, then, [each.id for each in mail])
        else:
            async with self._workspaces.enter(hold.task) as entered:
                if not conversation.is_started and entered.sandbox.task != hold.task.id:
                    # Another task has worked here since this one was given the sandbox.
                    await self._workspaces.charge(hold.task, entered.sandbox)
                given = await self._given(hold, entered.sandbox, conversation)
                mask = await self._workspaces.masks.of(hold.task, entered.sandbox, given.files)
                setting = Setting(agent, entered.guest, given.brief, given.files, mask)
                async with self._desks.at(hold.task, setting) as laid:
                    await self._attend(hold, laid)

    async def _attend(self, hold: Hold, setting: Setting) -> None:
        with self._wakes.of(hold.task.id) as news:
            run = AgentRun(self._store, self._clock, hold, setting, watching=self._watching)
            await run.attend(news)

    async def _given(self, hold: Hold, sandbox: SandboxRecord, conversation: Conversation) -> Given:
        settled = step_after(hold.task.losses, Phase.SETUP)
        place = Place(**await hold.step(settled, _done_before))
        task = replace(hold.task, conversation=conversation)
        # Its program may have to be installed first, and nobody has to wait for that in vain.
        given = self._settings.given(task, sandbox, place)
        return await self._moves.unless_cancelled(hold, given)

    async def _begin(
        self,
        hold: Hold,
        prompt: str,
        mail: Sequence[str] = (),
        *,
        stage: Stage | None = None,
        events: Sequence[Event] = (),
        change: Change = lambda _tx, task: task,
    ) -> None:
        """The next run; what the agent is told first is on record before it starts."""
        sandbox = await self._changes.find(hold.task.team_id, hold.task.sandbox_id)
        opened = talks.begun(hold.task.conversation, prompt, mail, stage=stage)
        given = await self._given(hold, sandbox, opened)
        agent = agent_at(hold.task.wish, opened.stage)
        talk = self._settings.agent(agent).begin(given.brief)
        begun, now = talks.stepped(opened, talk), self._clock.wall()

        def begin(tx: Transaction, task: TaskRecord) -> TaskRecord:
            if not task_mail.may_be_told(tx, mail, now):
                raise TooLate
            task_mail.put_back(tx, task.id, opened.opening, now)
            task_mail.note_delivered(tx, task.id, mail, now)
            if task.state is TaskState.COMPLETING:  # it was not right yet
                task = replace(moved(task, TaskState.RUNNING, now), phase=Phase.AGENT)
                tx.events.append([state_event(task, now)])
            task = with_restarted_timeout(change(tx, task), now)
            return replace(task, conversation=begun, vitals=signs.begun(now))

        with suppress(TooLate):  # then it is looked at again what there is to do
            await hold.change(begin, *events)

    async def _follow(self, hold: Hold, following: Next, mail: list[str]) -> None:
        if following.step is Step.BEGIN:
            then = hold.task.conversation.then
            await self._begin(hold, following.prompt, () if then else mail)
        elif following.step is Step.RESTART:
            await self._restart(hold, following)
        elif following.step is Step.FORGET:
            await self._replacing.forget(hold)
        elif following.step is Step.COMPLETE:
            await self._moves.to(hold, TaskState.COMPLETING)
        elif following.reason in _OF_THE_AGENT and self._may_try_again(hold.task):
            await self._try_again(hold, following)
        else:
            if following.step is not Step.CANCEL:
                await self._see_app(hold)
            await self._endings.end(hold, following)

    @staticmethod
    def _may_try_again(task: TaskRecord) -> bool:
        return task.wish.rounds.most > 1 and task.conversation.stage is Stage.WORK

    async def _try_again(self, hold: Hold, following: Next) -> None:
        """A round that the agent broke off is one too."""
        resumes = self._settings.agent(hold.task.agent).traits.resumes
        after = await self._judging.note_error(hold, following.why, resumes=resumes)
        if after.step is Step.BEGIN:
            await self._begin(hold, after.prompt)
            return
        await self._see_app(hold)
        await self._endings.end(hold, after)

    async def _restart(self, hold: Hold, following: Next) -> None:
        now = self._clock.wall()
        verdict = signs.may_restart(hold.task.restarts, now, self._watching.config.health)
        if not verdict.is_allowed:
            why = f"its agent died after {verdict.why}; last: {following.why}"
            await self._endings.end(hold, Next(Step.FAIL, reason=following.reason, why=why))
            return
        if verdict.wait_s:
            await self._moves.rest(hold, verdict.wait_s)
            return
        count = len(hold.task.restarts) + 1
        data = {"reason": following.reason, "why": following.why, "restarts": count}
        event = note(hold.task, EventKind.TASK_RESTARTED, now, data)
        unread = hold.task.conversation.opening  # it begins with them again

        def again(_tx: Transaction, task: TaskRecord) -> TaskRecord:
            return replace(task, restarts=(*task.restarts, now))

        await self._begin(hold, following.prompt, unread, events=(event,), change=again)

    async def _complete(self, hold: Hold) -> None:
        """What the agent made is judged, and it tries again, or what it made is collected."""
        following = await self._judged(hold)
        if following.step is Step.BEGIN:
            await self._begin(hold, following.prompt, stage=following.stage)
            return
        await self._endings.end(hold, following)

    async def _judged(self, hold: Hold) -> Next:
        """By whose turn it was."""
        resumes = self._settings.agent(hold.task.agent).traits.resumes
        stage, unkept = hold.task.conversation.stage, await self._modes.keep(hold)
        if unkept is not None and unkept.reason is Reason.SURROUNDINGS:
            return unkept  # whatever it was to be, nobody can say what it has done
        if stage is Stage.PLAN:
            return await self._reviews.plan(hold, resumes=resumes)
        if stage is Stage.REVIEW:
            left = self._judging.left(hold.task)
            return await self._reviews.judge(hold, left, resumes=resumes)
        following = unkept or await self._judging.judge(hold, resumes=resumes)
        if following.step is not Step.COMPLETE:
            return following
        if hold.task.wish.mode is WorkMode.VALIDATE:
            left = self._judging.left(hold.task)
            return await self._reviews.validate(hold, left, resumes=resumes)
        return await self._reviews.begin(hold) if hold.task.wish.review is not None else following

    async def _see_app(self, hold: Hold) -> None:
        """Without what its agent was not to change."""
        await self._endings.put_back(hold)
        await self._judging.see_app(hold)


async def _done_before() -> Any:
    raise Conflict("the task has lost its place", remediation="make it again")
