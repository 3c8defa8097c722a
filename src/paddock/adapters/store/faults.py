"""What drivers raise, as errors of ours."""

from collections.abc import Callable

from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from paddock.domain.errors import Broken, Conflict, PaddockError, Unavailable

Explain = Callable[[BaseException], PaddockError | None]
"""A new error of ours for a driver's; None for what is no driver's."""

REPORT_IT = "this is a fault in Paddock; please report it with the log around it"


def explain_common(error: BaseException, place: str) -> PaddockError | None:
    """What both databases say alike."""
    if isinstance(error, PoolTimeout):
        return Unavailable(
            f"every connection to {place} is busy", remediation="try again, or raise `readers`"
        )
    if not isinstance(error, StatementError):
        return None
    # A column's type refused the value before the database saw it.
    if isinstance(error.orig, PaddockError):
        return error.orig
    if isinstance(error, IntegrityError):
        return _conflict(error)
    if not isinstance(error, DBAPIError):
        return Broken(f"{place}: {first_line(error)}", remediation=REPORT_IT)
    return None


def concerns_all(error: PaddockError | None) -> bool:
    """Whether it is about the database, and not about what one work did."""
    return isinstance(error, Unavailable | Broken)


def first_line(error: BaseException | None) -> str:
    """Without statement and parameters, which may hold secrets."""
    said = getattr(error, "orig", None) or error
    return (str(said).splitlines() or [type(said).__name__])[0]


def _conflict(error: IntegrityError) -> Conflict:
    said = first_line(error)
    if "FOREIGN KEY" in said or "foreign key" in said:
        return Conflict(
            f"what it belongs to does not exist: {said}", remediation="make that one first"
        )
    return Conflict(f"there is one already: {said}", remediation="use another id or name")
