"""Sandboxes that were lost under a task, as clients see them."""

from datetime import datetime

from pydantic import Field

from paddock.domain.task_loss import Loss
from paddock.interfaces.api.schemas.common import Shape, at


class LossShape(Shape):
    """A sandbox that was lost under a task, and what the next one was made of."""

    sandbox_id: str
    at: datetime
    snapshot_id: str | None = Field(description="null is what the first was made of")
    as_of: datetime | None = Field(description="when that was taken: what was done later is gone")


def show_loss(loss: Loss) -> LossShape:
    return LossShape(
        sandbox_id=loss.sandbox_id,
        at=at(loss.at),
        snapshot_id=loss.snapshot_id or None,
        as_of=at(loss.as_of) if loss.snapshot_id else None,
    )
