"""How long whoever follows an agent may wait before there is something to do, whatever it does."""

from dataclasses import dataclass

from paddock.domain.conversation import Conversation
from paddock.domain.task import TaskRecord

WAIT_S = 15.0
_INBOX_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Marks:
    """What only the follower knows."""

    beats_at: float
    """When the next sign of life is due."""
    polite_s: float
    """How long an agent may take to end when it is asked to, before it is made to."""
    lingers_until: float | None = None
    """How long one that has nothing left to do may take to end."""
    is_forced: bool = False
    """It was made to end."""
    is_deaf: bool = False
    """Nothing can be said to it any more."""
    mail_due_at: float | None = None
    """When something that it was to be told may be too late."""


def takes_too_long(conversation: Conversation, marks: Marks, now: float) -> bool:
    """To end, though it was asked to or has nothing left to do."""
    asked, lingers = conversation.stopping_since, marks.lingers_until
    is_late = asked is not None and now >= asked + marks.polite_s
    return is_late or (lingers is not None and now >= lingers)


def patience(task: TaskRecord, marks: Marks, now: float) -> float:
    """Until the next thing that has to be done."""
    conversation = task.conversation
    moments = [now + WAIT_S, marks.beats_at]
    if conversation.outbox and not marks.is_deaf:
        moments.append(now)
    if conversation.inboxed:
        moments.append(now + _INBOX_LOOK_S)
    if marks.mail_due_at is not None:
        moments.append(marks.mail_due_at)
    if not marks.is_forced:
        if conversation.stopping_since is not None:
            moments.append(conversation.stopping_since + marks.polite_s)
        elif task.deadline is not None and task.waiting_since is None:
            moments.append(task.deadline)
        if marks.lingers_until is not None:
            moments.append(marks.lingers_until)
    return max(0.0, min(moments) - now)
