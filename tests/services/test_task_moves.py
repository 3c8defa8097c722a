"""Why a task ended that somebody's refusal ended: by whose refusal it was."""

import pytest

from paddock.domain import errors
from paddock.domain.reason import Reason
from paddock.services.task_moves import reason_of


@pytest.mark.proves("T7")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (errors.Refused, Reason.PROVIDER),
        (errors.Broken, Reason.PROVIDER),
        (errors.Unavailable, Reason.PROVIDER),
        (errors.Conflict, Reason.SANDBOX_UNAVAILABLE),
        (errors.NotFound, Reason.SANDBOX_UNAVAILABLE),
        (errors.LimitExceeded, Reason.SANDBOX_UNAVAILABLE),
        (errors.Forbidden, Reason.SURROUNDINGS),
        (errors.InvalidRequest, Reason.SURROUNDINGS),
        (errors.PaddockError, Reason.INTERNAL),
    ],
)
def test_every_refusal_is_told_from_every_other(kind, reason):
    assert reason_of(kind("no")) is reason
