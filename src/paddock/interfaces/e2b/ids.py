"""Ids as E2B's clients know them: letters and digits only, because they stand in host names."""

import re

from paddock.domain.ids import ULID
from paddock.domain.records import SANDBOX_PREFIX

_SANDBOX = re.compile(rf"{SANDBOX_PREFIX}_?({ULID})")


def shown(sandbox_id: str) -> str:
    """A sandbox's id as a client gets it."""
    return sandbox_id.replace("_", "", 1)


def meant(given: str) -> str:
    """Our id of what a client means; what looks like none is taken for a name."""
    found = _SANDBOX.fullmatch(given.lower())
    return f"{SANDBOX_PREFIX}_{found[1]}" if found else given
