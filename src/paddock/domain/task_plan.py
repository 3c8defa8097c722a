"""What a task would do, in words, before anything is made."""

from dataclasses import dataclass

from paddock.domain.agent import Traits, WorkMode
from paddock.domain.app_health import expected
from paddock.domain.budget import Budget
from paddock.domain.conversation import Stage
from paddock.domain.task import TaskRecord
from paddock.domain.task_review import agent_at
from paddock.domain.task_wish import Check, TaskWish, When


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A task that nobody has made."""

    task: TaskRecord
    steps: tuple[str, ...]


def rehearsed(task: TaskRecord, traits: Traits) -> Rehearsal:
    """In the order in which it would be done."""
    wish = task.wish
    after = f"wait for {', '.join(wish.after)}" if wish.after else ""
    steps = (
        after,
        _place(wish, task.provider),
        f"put {len(wish.files)} files there" if wish.files else "",
        "keep what is there as a commit off all branches",
        "have it make a plan first, and put back what it changes" * _plans(wish),
        _agent(wish, traits),
        *(f"check {_checked(each)}" for each in wish.checks),
        _app(wish),
        _rounds(wish),
        _review(wish),
        "keep what the agent made as a commit off all branches",
        _limits(wish),
    )
    return Rehearsal(task, tuple(step for step in steps if step))


def _place(wish: TaskWish, provider: str) -> str:
    place = wish.workspace
    where = f" in {place.directory}" if place.directory else ""
    if place.sandbox:
        return f"work in sandbox {place.sandbox}{where}"
    if place.fork:
        return f"work in a copy of sandbox {place.fork}{where}"
    made = f"snapshot {place.snapshot}" if place.snapshot else f"template {place.template}"
    made = made if place.snapshot or place.template else "the default template"
    return f"make a sandbox of {made} on {provider}, and work{where or ' in it'}"


def _agent(wish: TaskWish, traits: Traits) -> str:
    model = wish.model or traits.default_model
    session = f", with the session of {wish.follows}" if wish.follows else ""
    said = f"have {traits.title} work{f' with {model}' if model else ''}{session}"
    if wish.mode is WorkMode.IMPLEMENT:
        return said
    how = "which it keeps to by itself" if wish.mode in traits.keeps_to else "which it is told"
    return f"{said}, in the mode {wish.mode}, {how}; put back what it changes"


def _checked(check: Check) -> str:
    command = " ".join(check.cmd)
    late = " when all others have passed" if check.when is When.END else ""
    proves = f": {check.description}" if check.description else ""
    return f"{check.name} by `{command}`, {check.timeout_s:g} s at most{late}{proves}"


def _app(wish: TaskWish) -> str:
    if (app := wish.health) is None:
        return ""
    anew = ", ".join(app.restart)
    first = f"start {anew} anew if {', '.join(app.globs)} changed, then " if anew else ""
    what = f"{first}look at the app for {app.within_s:g} s at most"
    return f"{what}: {expected(app)}"


def _rounds(wish: TaskWish) -> str:
    if wish.rounds.most == 1:
        return ""
    return (
        f"have it try again until all checks pass: {wish.rounds.most} rounds at most, and no more "
        f"than {wish.rounds.errors} that it breaks off in a row"
    )


def _plans(wish: TaskWish) -> bool:
    return wish.review is not None and wish.review.plan


def _review(wish: TaskWish) -> str:
    if wish.review is None or not wish.review.rounds:
        return ""
    least = wish.review.min_lines
    what = f"a change of {least} lines or more" if least else "it"
    return (
        f"have {agent_at(wish, Stage.REVIEW)} review {what} in a session of its own, "
        f"{wish.review.rounds} times at most, until only nits are left"
    )


def _limits(wish: TaskWish) -> str:
    budget = Budget.__dataclass_fields__
    said = [
        f"{getattr(wish.budget, name)} {name}"
        for name in budget
        if getattr(wish.budget, name) is not None
    ]
    return f"end it after {', '.join((f'{wish.timeout_s:g} s', *said))} at the latest"
