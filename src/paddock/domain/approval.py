"""Approvals: what somebody is asked before it is done, and what they have answered.

pending ─┬─> allowed_once     what waits, and the same again for a moment
         ├─> allowed_task     the same until the task is over; without one, in this sandbox
         ├─> allowed_always   the same from now on, wherever was said
         ├─> denied           and not asked again for a while
         └─> expired          nobody answered in time: as good as denied
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paddock.domain.errors import Conflict, Forbidden, InvalidRequest

APPROVAL_PREFIX = "apr"
MOST_PENDING = 16
"""Of one sandbox: a hostile program cannot bury people in questions."""
MOST_AN_HOUR = 60
ONCE_S = 60.0
DENIED_S = 900.0
EXPIRED_S = 60.0
LONGEST_NOTE = 4000


class Kind(StrEnum):
    """What is asked for."""

    EGRESS = "egress"
    """A connection to a host and port."""
    COMMAND = "command"
    QUESTION = "question"
    """Whether a task goes on, and how: what is answered in words, its agent is told."""
    AGENT = "agent"
    """What an agent asks by itself: what is answered, it is told."""


class State(StrEnum):
    """What became of it. All but the first are for good."""

    PENDING = "pending"
    ALLOWED_ONCE = "allowed_once"
    ALLOWED_TASK = "allowed_task"
    """For the task that has asked; for the sandbox where it was at none."""
    ALLOWED_ALWAYS = "allowed_always"
    DENIED = "denied"
    EXPIRED = "expired"

    @property
    def is_allowed(self) -> bool:
        return self in _ALLOWED


_ALLOWED = (State.ALLOWED_ONCE, State.ALLOWED_TASK, State.ALLOWED_ALWAYS)


class Level(StrEnum):
    """Where a rule is put that allows something for longer."""

    SANDBOX = "sandbox"
    APP = "app"
    TEMPLATE = "template"
    PRESET = "preset"
    TEAM = "team"
    """Commands only, as apps and presets are for hosts only."""


@dataclass(frozen=True, slots=True)
class Approval:
    """One question, however often it was asked, and its answer."""

    id: str
    team_id: str
    sandbox_id: str
    kind: Kind
    what: str
    """The same for the same: `host:port`, a command's digest, or a task and what it is about."""
    created_at: float
    expires_at: float
    state: State = State.PENDING
    sandbox_name: str = ""
    app: str = ""
    task_id: str = ""
    """The task that it is about, or that the sandbox was at when it was asked last."""
    title: str = ""
    """For people, and for the records: a place, or a program without its arguments."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What an answer depends on. It is gone once there is one: arguments may hold secrets."""
    why: str = ""
    """What made it a question."""
    asked_by: str = ""
    """Who acts, as in the audit log; the sandbox itself for what a program in it does."""
    count: int = 1
    last_at: float = 0.0
    answered_at: float | None = None
    answered_by: str = ""
    level: Level | None = None
    rule: str = ""
    """What the answer has put into a policy."""
    note: str = ""
    """What who answered has said about it."""
    used: bool = False
    """What was allowed once has been done."""

    @property
    def is_pending(self) -> bool:
        return self.state is State.PENDING


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody decides."""

    state: State
    level: Level | None = None
    """For `allowed_always`: where the rule is put."""
    note: str = ""

    def __post_init__(self) -> None:
        if self.state in (State.PENDING, State.EXPIRED):
            raise InvalidRequest(
                f"{self.state} is no answer",
                remediation="answer allowed_once, allowed_task, allowed_always or denied",
            )
        if (self.level is not None) != (self.state is State.ALLOWED_ALWAYS):
            raise InvalidRequest(
                "where a rule is put is said for allowed_always, and only there",
                remediation="say `level` with allowed_always: sandbox, app, template, preset, team",
            )
        if len(self.note) > LONGEST_NOTE:
            raise InvalidRequest(
                f"the note has {len(self.note)} characters",
                remediation=f"{LONGEST_NOTE} is the most",
            )


def asked_again(approval: Approval, times: int, now: float, task_id: str = "") -> Approval:
    """By the task that asks now: the one before may be over."""
    task_id = task_id or approval.task_id
    return replace(approval, count=approval.count + times, last_at=now, task_id=task_id)


def answered(approval: Approval, answer: Answer, by: str, now: float) -> Approval:
    """The first answer counts; Conflict, with who gave it, for every other."""
    if not approval.is_pending:
        raise Conflict(_already(approval), remediation="it is asked again when it is needed again")
    if now >= approval.expires_at:
        raise Conflict(
            f"approval {approval.id} has expired: nobody answered in time",
            remediation="it is asked again when it is needed again",
        )
    return replace(
        approval,
        state=answer.state,
        level=answer.level,
        note=answer.note,
        answered_by=by,
        answered_at=now,
        detail={},
    )


def check_answers_question(approval: Approval) -> None:
    """It is about one task at one moment: there is nothing that could be allowed for longer."""
    if approval.state in (State.ALLOWED_TASK, State.ALLOWED_ALWAYS):
        raise InvalidRequest(
            f"{approval.state} is no answer to a question about a task",
            remediation="answer allowed_once or denied, and say more in `note`",
        )


def expired(approval: Approval, why: str, now: float) -> Approval:
    """Nobody has answered, or nobody is left to whom it matters."""
    if not approval.is_pending:
        raise Conflict(_already(approval))
    return replace(approval, state=State.EXPIRED, note=why, answered_at=now, detail={})


def _already(approval: Approval) -> str:
    if approval.state is State.EXPIRED:
        return f"approval {approval.id} has expired: {approval.note}"
    return f"approval {approval.id} was answered by {approval.answered_by}: {approval.state}"


def check_may_answer(
    approval: Approval, lineage: Sequence[str], holders: Sequence[str] = ()
) -> None:
    """What asks with a token may not answer with it, nor with what was made by it: an agent does
    not approve of itself. `lineage` is what it is answered with, what has made that, and so on.

    `holders` are those that have what opens the sandbox's guest. What comes that way, and what
    programs in the sandbox reach for, may be any of theirs.
    """
    asker = approval.asked_by.rpartition("/")[2]
    by_guest = approval.kind is Kind.EGRESS or _PASSAGE in approval.asked_by.split("/")
    own = [each for each in lineage if each == asker or (by_guest and each in holders)]
    if own:
        what = "has asked for" if own[0] == asker else "opens the sandbox that has asked for"
        who = own[0] if own[0] == lineage[0] else f"{own[0]}, which has made {lineage[0]},"
        raise Forbidden(
            f"{who} {what} approval {approval.id} itself and cannot answer it",
            remediation="have somebody else answer it; what runs commands should have a token of "
            "its own, made by yours: `paddock token create`, and yours can answer then",
        )


_PASSAGE = "passage"
_HOLDS_S = {
    State.ALLOWED_ONCE: ONCE_S,
    State.DENIED: DENIED_S,
    State.EXPIRED: EXPIRED_S,
}


def holds_for_s(approval: Approval, now: float) -> float:
    """How long an answer still holds for the same asked again; 0 when it is to be asked anew.

    What was allowed for longer holds by the rule that it made, if that is still there.
    """
    if approval.answered_at is None or approval.used:
        return 0.0
    return max(0.0, approval.answered_at + _HOLDS_S.get(approval.state, 0.0) - now)
