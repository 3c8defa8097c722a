"""What an agent says to be done is judged: round by round, each once."""

from dataclasses import asdict, replace
from typing import Any

from paddock.domain import conversation as talks
from paddock.domain import task_rounds as rounds
from paddock.domain.app_health import HealthWish
from paddock.domain.app_verdict import complaint, health_again
from paddock.domain.budget import Left, standing
from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.task import Phase, TaskRecord
from paddock.domain.task_course import Next, Step
from paddock.domain.task_rounds import Round, checked_again
from paddock.ports.clock import Clock
from paddock.services.task_checks import run_checks
from paddock.services.task_events import note
from paddock.services.task_health import AppHealths
from paddock.services.task_health import step_of as health_step
from paddock.services.task_hold import Hold
from paddock.services.task_moves import Moves
from paddock.services.task_workspace import Workspaces


def step_of(task: TaskRecord, run: int = 0) -> str:
    """The journal's name for the judgement of a run; each is made once."""
    return f"{Phase.BUILD_CHECK}.{run or task.conversation.run}"


class Judging:
    """The same for every task."""

    def __init__(
        self, clock: Clock, workspaces: Workspaces, moves: Moves, apps: AppHealths
    ) -> None:
        self._clock = clock
        self._workspaces = workspaces
        self._moves = moves
        self._apps = apps

    async def judge(self, hold: Hold, *, resumes: bool) -> Next:
        """What follows from what the checks say of the run that is over, and the app with them."""
        if hold.task.wish.health is not None:
            await self._judge_with_app(hold, hold.task.wish.health)
            return self._follows(hold, resumes=resumes)
        await self._moves.phase(
            hold,
            Phase.BUILD_CHECK,
            lambda: self._look(hold),
            _with_round,
            step=step_of(hold.task),
            tell=self._told,
        )
        return self._follows(hold, resumes=resumes)

    async def _judge_with_app(self, hold: Hold, wish: HealthWish) -> None:
        """Each part is a step of its own: none that is over is repeated."""
        seen = await self._moves.phase(
            hold,
            Phase.BUILD_CHECK,
            lambda: self._look(hold),
            step=f"checks.{hold.task.conversation.run}",
        )
        checked = [checked_again(each) for each in seen["checks"]]
        found = await self._apps.look(hold, self._moves, wish, checked)

        async def both() -> dict[str, Any]:
            return {**seen, "health": asdict(found)}

        await hold.step(step_of(hold.task), both, _with_round, self._told)

    async def see_app(self, hold: Hold) -> None:
        """Also where the agent failed: what it left behind is what there is."""
        wish = hold.task.wish.health
        if wish is None or not hold.task.directory:
            return
        try:
            await self._apps.look(hold, self._moves, wish, ())
        except PaddockError as error:
            if error.passes:
                raise

    async def note_error(self, hold: Hold, why: str, *, resumes: bool) -> Next:
        """The same of a run that the agent broke off, where it may try again."""

        async def broken() -> dict[str, Any]:
            return {"error": why}

        step = step_of(hold.task)
        await hold.step(step, broken, _with_round, self._told)
        return self._follows(hold, resumes=resumes)

    async def _look(self, hold: Hold) -> dict[str, Any]:
        task = hold.task
        async with self._workspaces.enter(task) as entered:
            mask = await self._workspaces.masks.of(task, entered.sandbox)
            checked = await run_checks(entered.guest, task, mask, clock=self._clock)
        tree = await self._tree(task) if task.wish.rounds.most > 1 else ""
        return {"checks": [asdict(each) for each in checked], "tree": tree}

    async def _tree(self, task: TaskRecord) -> str:
        try:
            async with self._workspaces.tree(task) as tree:
                return await tree.now()
        except PaddockError as error:
            if error.passes or await self._workspaces.is_lost(task):
                raise
            return ""  # nobody knows: then no round is taken for one that changed nothing

    def _told(self, task: TaskRecord, _got: Any) -> list[Event]:
        if not task.wish.checks and task.wish.health is None:
            return []
        data = task.rounds[-1].told(task.wish.rounds.most)
        return [note(task, EventKind.TASK_ROUND, self._clock.wall(), data)]

    def _follows(self, hold: Hold, *, resumes: bool) -> Next:
        task = hold.task
        last = task.reviews[-1].run if task.reviews else 0
        since = [each for each in task.rounds if each.run > last]
        anew = task.losses[-1].run if task.losses else 0
        limits, left = task.wish.rounds, self.left(task)
        following = rounds.after_round(since, limits, left, begun_anew=anew)
        if following.step is not Step.BEGIN:
            return following
        kept = hold.output(step_of(task)) or {}
        prompt = rounds.next_prompt(
            task.wish,
            task.rounds[-1],
            [checked_again(each) for each in kept.get("checks", ())],
            resumes=resumes and bool(task.conversation.session),
            words=talks.verdict(task.conversation).last_words,
            app=_complaint(kept),
        )
        return replace(following, prompt=prompt)

    def left(self, task: TaskRecord) -> rounds.Left:
        late = task.deadline is not None and self._clock.wall() >= task.deadline
        stands = standing(task.wish.budget.times(1 + task.extensions), task.used)
        return rounds.Left(late, str(stands) if stands.left is Left.NOTHING else "")


def _with_round(task: TaskRecord, got: dict[str, Any]) -> TaskRecord:
    number, run = len(task.rounds) + 1, task.conversation.run
    if "error" in got:
        made: Round = rounds.broken_off(got["error"], number=number, run=run)
    else:
        found = [checked_again(each) for each in got["checks"]]
        made = rounds.judged(task.wish.checks, found, number=number, run=run, tree=got["tree"])
        if got.get("health"):
            app = health_again(got["health"])
            made = rounds.with_app(made, app.outcome, app.fault)
    return replace(task, rounds=(*task.rounds, made))


def _complaint(kept: dict[str, Any]) -> str:
    app = health_again(kept["health"]) if kept.get("health") else None
    return complaint(app) if app is not None and not app.is_well else ""


def last_found(hold: Hold) -> dict[str, Any]:
    """Of the last round that was checked: its `checks`, and its `health` where that was wanted,
    unless the app was looked at since."""
    kept: dict[str, Any] = {}
    for each in reversed(hold.task.rounds):
        if not each.error:
            kept = hold.output(step_of(hold.task, each.run)) or {}
            break
    since = hold.output(health_step(hold.task.conversation.run))
    return {**kept, "health": since} if since else kept
