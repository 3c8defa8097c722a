"""Approvals as the API shows and takes them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.domain.approval import LONGEST_NOTE, Answer, Approval, Kind, Level, State
from paddock.interfaces.api.schemas.common import Shape, Text, at, moment


class ApprovalShape(Shape):
    """A question to people, and what they answered."""

    id: str
    kind: Kind
    state: State
    sandbox_id: str
    sandbox: str = Field(description="its name when it asked")
    app: str | None
    task_id: str | None
    title: str = Field(
        description="a place, a program without its arguments, or a question",
        examples=["api.example.com:443"],
    )
    detail: dict[str, Any] = Field(
        description="all there is to know of it; gone once it is answered"
    )
    why: str
    asked_by: str = Field(description="who acts; the sandbox for what a program in it does")
    count: int = Field(description="how often it was asked")
    created_at: datetime
    last_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    answered_by: str | None
    level: Level | None
    rule: str | None = Field(description="what the answer has put into a policy")
    note: str


class AnswerShape(Shape):
    """What somebody decides."""

    answer: Literal["allowed_once", "allowed_task", "allowed_always", "denied"] = Field(
        description="`allowed_once` is for what waits and for the same within a minute, "
        "`allowed_task` until its task is over (without one, for this sandbox), `allowed_always` "
        "for wherever `level` says, `denied` is remembered for a quarter of an hour; questions "
        "take `allowed_once` and `denied`",
    )
    level: Level | None = Field(None, description="for `allowed_always`: where the rule is put")
    note: Annotated[
        Text,
        Field(max_length=LONGEST_NOTE, description="for the audit log; a task's agent is told it"),
    ] = ""

    def read(self) -> Answer:
        return Answer(State(self.answer), self.level, self.note)


def show(approval: Approval) -> ApprovalShape:
    return ApprovalShape(
        id=approval.id,
        kind=approval.kind,
        state=approval.state,
        sandbox_id=approval.sandbox_id,
        sandbox=approval.sandbox_name,
        app=approval.app or None,
        task_id=approval.task_id or None,
        title=approval.title,
        detail=dict(approval.detail),
        why=approval.why,
        asked_by=approval.asked_by,
        count=approval.count,
        created_at=at(approval.created_at),
        last_at=at(approval.last_at),
        expires_at=at(approval.expires_at),
        answered_at=moment(approval.answered_at),
        answered_by=approval.answered_by or None,
        level=approval.level,
        rule=approval.rule or None,
        note=approval.note,
    )
