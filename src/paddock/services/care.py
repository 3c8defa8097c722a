"""Looking after tasks and the sandboxes that they work in: what an operator does by hand."""

from dataclasses import dataclass

from paddock.services.checkups import Checkups
from paddock.services.quarantine import Quarantines
from paddock.services.status import StatusPage
from paddock.services.task_cleaning import TaskCleaning
from paddock.services.task_diagnosis import TaskDiagnosis


@dataclass(frozen=True, slots=True)
class Care:
    """What there is of it."""

    cleaning: TaskCleaning
    diagnosis: TaskDiagnosis
    quarantines: Quarantines
    status: StatusPage
    checkups: Checkups
