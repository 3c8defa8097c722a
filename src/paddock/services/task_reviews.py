"""Plans and reviews of a task: each is a run of an agent, and judged once."""

from dataclasses import asdict, replace
from typing import Any

from paddock.domain import conversation as talks
from paddock.domain.conversation import Stage
from paddock.domain.event import Event, EventKind
from paddock.domain.task import TaskRecord
from paddock.domain.task_course import Next, Step
from paddock.domain.task_review import (
    Finding,
    Opinion,
    Reviewed,
    Severity,
    after_review,
    after_validation,
    opinion_of,
    planned_prompt,
    review_prompt,
    revise_prompt,
    verdict_of,
)
from paddock.domain.task_rounds import Left
from paddock.ports.clock import Clock
from paddock.services.task_events import note
from paddock.services.task_hold import Hold
from paddock.services.task_tree import Tree
from paddock.services.task_workspace import Workspaces

_LARGEST_DIFF = 100_000
_SHOWN = 2000


def mark_of(task: TaskRecord) -> str:
    """What was there when whoever is at work began, as the workspace keeps it."""
    is_review = task.conversation.stage is Stage.REVIEW and bool(task.rounds)
    return f"review-{task.rounds[-1].run}" if is_review else "before"


class Reviews:
    """The same for every task."""

    def __init__(self, clock: Clock, workspaces: Workspaces) -> None:
        self._clock = clock
        self._workspaces = workspaces

    async def plan(self, hold: Hold, *, resumes: bool) -> Next:
        """The plan is kept, and the work begins by it."""

        async def take() -> dict[str, str]:
            return {"plan": talks.verdict(hold.task.conversation).last_words}

        got = await hold.step(
            f"plan.{hold.task.conversation.run}",
            take,
            lambda task, got: replace(task, plan=got["plan"]),
            lambda task, got: [self._note(task, EventKind.TASK_PLANNED, got["plan"])],
        )
        resumes = resumes and bool(hold.task.conversation.session)
        prompt = planned_prompt(hold.task.wish, got["plan"], resumes=resumes)
        return Next(Step.BEGIN, prompt, stage=Stage.WORK)

    def _note(self, task: TaskRecord, kind: EventKind, plan: str) -> Event:
        return note(task, kind, self._clock.wall(), {"plan": plan[:_SHOWN]})

    async def begin(self, hold: Hold) -> Next:
        """Somebody looks at what is done. A change may be too small for that by `min_lines`, but
        not one that a reviewer has found fault with."""
        wish = hold.task.wish
        assert wish.review is not None
        if not wish.review.rounds:
            return Next(Step.COMPLETE)
        got = await hold.step(
            f"reviewing.{hold.task.conversation.run}", lambda: self._seen(hold.task), _with_words
        )
        is_small = got["lines"] < wish.review.min_lines and not got.get("unread")
        if is_small and not hold.task.reviews:
            return Next(Step.COMPLETE)
        prompt = review_prompt(wish, hold.task.plan, got["diff"], is_cut=got["is_cut"])
        return Next(Step.BEGIN, prompt, stage=Stage.REVIEW)

    async def _seen(self, task: TaskRecord) -> dict[str, Any]:
        async with self._workspaces.enter(task) as entered:
            mask = await self._workspaces.masks.of(task, entered.sandbox)
            tree = Tree(entered.guest, task.directory, task.id, task.checkpoint)
            await tree.keep(f"review-{task.rounds[-1].run}")
            commit, unread = await tree.keep_after()
            tree = replace(tree, after=commit)
            lines = sum(each.added + each.removed for each in await tree.changes())
            diff, is_cut = await tree.diff(_LARGEST_DIFF)
        words = talks.verdict(task.conversation).last_words
        text = mask.text(diff.decode("utf-8", "replace"))
        text = f"{text}\n({mask.text(unread)})\n" if unread else text
        seen = {"lines": lines, "diff": text, "is_cut": is_cut, "words": words}
        return {**seen, "unread": unread}

    async def judge(self, hold: Hold, left: Left, *, resumes: bool) -> Next:
        """What follows from what the reviewer said."""

        async def read() -> dict[str, Any]:
            opinion, findings = verdict_of(talks.verdict(hold.task.conversation).last_words)
            return {"opinion": opinion, "findings": [asdict(each) for each in findings]}

        run = hold.task.conversation.run
        await hold.step(f"review.{run}", read, _with_review, self._told)
        task = hold.task
        assert task.wish.review is not None
        following = after_review(task.reviews, task.wish.review, left)
        if following.step is Step.BEGIN and following.stage is Stage.WORK:
            resumes = resumes and bool(task.conversation.aside)
            prompt = revise_prompt(task.wish, task.reviews[-1], resumes=resumes)
            return replace(following, prompt=prompt)
        return following

    async def validate(self, hold: Hold, left: Left, *, resumes: bool) -> Next:
        """Return the next step after the verdict of a task in mode validate."""

        async def read() -> dict[str, Any]:
            task = await hold.refresh()  # its agent may have reported a verdict since
            opinion, findings = opinion_of(talks.verdict(task.conversation).last_words, task.claims)
            return {"opinion": opinion, "findings": [asdict(each) for each in findings]}

        await hold.step(f"review.{hold.task.conversation.run}", read, _with_review, self._told)
        task = hold.task
        resumes = resumes and bool(task.conversation.session)
        return after_validation(task.wish, task.reviews, left, resumes=resumes)

    def _told(self, task: TaskRecord, _got: Any) -> list[Event]:
        data = task.reviews[-1].told()
        return [note(task, EventKind.TASK_REVIEWED, self._clock.wall(), data)]


def _with_words(task: TaskRecord, got: dict[str, Any]) -> TaskRecord:
    return replace(task, words=got["words"])


def _with_review(task: TaskRecord, got: dict[str, Any]) -> TaskRecord:
    findings = tuple(Finding(Severity(each["severity"]), each["text"]) for each in got["findings"])
    made = Reviewed(len(task.reviews) + 1, task.conversation.run, Opinion(got["opinion"]), findings)
    return replace(task, reviews=(*task.reviews, made))
