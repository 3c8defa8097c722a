"""Pages of lists: what is asked for, and whether its cursor can be one of that list."""

import re
from typing import Annotated, Any

from fastapi import Depends, Query

from paddock.domain.approval import APPROVAL_PREFIX
from paddock.domain.errors import InvalidRequest
from paddock.domain.ids import ULID
from paddock.domain.message import MESSAGE_PREFIX
from paddock.domain.purge import PURGE_PREFIX
from paddock.domain.records import SANDBOX_PREFIX, SNAPSHOT_PREFIX
from paddock.domain.session import SESSION_PREFIX
from paddock.domain.ssh import PREFIX as SSH_PREFIX
from paddock.domain.task import TASK_PREFIX
from paddock.domain.team import PERSON_PREFIX, TOKEN_PREFIX
from paddock.domain.volume import VOLUME_PREFIX
from paddock.ports.store import Page
from paddock.services.access import TEAM_PREFIX

MAX_PAGE = 500


def cursors_like(pattern: str) -> Any:
    """The page of a list whose cursors look like this. One that cannot be its own would be taken
    for a place in it, and begin a page anywhere."""
    own = re.compile(pattern)

    async def page(
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="at most so many")] = 50,
        cursor: Annotated[
            str, Query(max_length=400, description="next_cursor of the page before")
        ] = "",
    ) -> Page:
        if cursor and not own.fullmatch(cursor):
            raise InvalidRequest(
                f"query.cursor: {cursor[:40]!r} is no place in this list",
                remediation="use next_cursor as it was given by the same list, or none",
            )
        # One more than asked for tells whether there is a next page.
        return Page(limit + 1, cursor)

    return Depends(page)


def _by_id(prefix: str) -> Any:
    return cursors_like(f"{prefix}_{ULID}")


ApprovalPage = Annotated[Page, _by_id(APPROVAL_PREFIX)]
ByNumber = Annotated[Page, cursors_like("[0-9]{1,18}")]
ByName = Annotated[Page, cursors_like("[A-Za-z0-9_][A-Za-z0-9_.:-]{0,255}")]
# The guardian's are numbered within their task.
MessagePage = Annotated[Page, cursors_like(rf"{MESSAGE_PREFIX}_{ULID}(\.[a-z0-9-]{{1,40}})?")]
PersonPage = Annotated[Page, _by_id(PERSON_PREFIX)]
PurgePage = Annotated[Page, _by_id(PURGE_PREFIX)]
SandboxPage = Annotated[Page, _by_id(SANDBOX_PREFIX)]
SessionPage = Annotated[Page, _by_id(SESSION_PREFIX)]
SnapshotPage = Annotated[Page, _by_id(SNAPSHOT_PREFIX)]
SshPage = Annotated[Page, _by_id(SSH_PREFIX)]
TaskPage = Annotated[Page, _by_id(TASK_PREFIX)]
TeamPage = Annotated[Page, _by_id(TEAM_PREFIX)]
TokenPage = Annotated[Page, _by_id(TOKEN_PREFIX)]
VolumePage = Annotated[Page, _by_id(VOLUME_PREFIX)]
