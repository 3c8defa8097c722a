"""What becomes of a task whose agent has asked somebody something: it waits, and goes on with the
answer."""

from collections.abc import Sequence
from dataclasses import replace

from paddock.domain.message import Message
from paddock.domain.task import TaskRecord, TaskState, moved
from paddock.domain.task_course import Next, Step
from paddock.ports.clock import Clock
from paddock.ports.store import Transaction
from paddock.services import task_mail
from paddock.services.agent_questions import is_answer, pending
from paddock.services.task_events import state_event
from paddock.services.task_hold import Hold

AGENT = "agent"
"""What made a task wait whose agent asks."""


class Asking:
    """Asked when a run of an agent has ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def after(self, hold: Hold, following: Next, mail: Sequence[Message]) -> Next | None:
        """What follows then; None when it waits for an answer, or has just had one: look again."""
        if not _may_wait(hold.task, following):
            return following
        before, now = {each.id for each in mail}, self._clock.wall()
        more: list[bool] = []

        def change(tx: Transaction, task: TaskRecord) -> TaskRecord:
            more[:] = [any(each.id not in before for each in task_mail.waiting(tx, task.id, now))]
            asked = pending(tx, task)
            if task.is_cancelled or mail or more[0] or not asked:
                return task
            waiting = replace(
                moved(task, TaskState.WAITING, now, detail=f"its agent asks: {asked[0].title}"),
                waits_for=asked[0].id,
                waits_rule=AGENT,
                waiting_since=now,
            )
            tx.events.append([state_event(waiting, now)])
            return waiting

        task = await hold.change(change)
        if task.state is TaskState.WAITING or more[0]:
            return None
        answers = await hold.look(lambda tx, _: [each for each in mail if is_answer(tx, each)])
        return self._begun_with(task, mail) if answers else following

    def _begun_with(self, task: TaskRecord, mail: Sequence[Message]) -> Next:
        """Whoever remembers nothing is told everything again, with all that has come for it."""
        said = "\n\n".join(each.text for each in mail)
        before = task.conversation.prompt or task.wish.prompt
        return Next(Step.BEGIN, prompt=f"{before}\n\n{said}")


def _may_wait(task: TaskRecord, following: Next) -> bool:
    """It has come to its end by itself; that it asked is something that it has done, even if it
    has said nothing."""
    talk = task.conversation
    is_silent = talk.exit_code == 0 and talk.why_stopped is None
    return following.step is Step.COMPLETE or (following.step is Step.FAIL and is_silent)


def is_over(tx: Transaction, task: TaskRecord, now: float) -> bool:
    """Whether what it waits for has come, or something else to do."""
    found = tx.approvals.get(task.team_id, task.waits_for)
    return found is None or not found.is_pending or bool(task_mail.waiting(tx, task.id, now))
