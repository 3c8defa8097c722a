"""Why a sandbox was stopped: labels cannot be changed, so a volume of its own carries it.

A note is written before the container ends and means nothing while it runs, so a control plane that
dies in between leaves nothing wrong.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.names import Names
from paddock.domain.errors import Conflict, NotFound
from paddock.domain.reason import Reason


@dataclass(frozen=True, slots=True)
class Note:
    """Why, and for people what led to it."""

    reason: Reason
    detail: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of one installation."""

    engine: Engine
    names: Names

    async def write(self, container: str, reason: Reason, detail: str = "") -> None:
        await self.remove(container)
        note = Note(reason, detail, container)
        order = {
            "Name": self.names.note(container),
            "Driver": "local",
            "Labels": records.labels(self.names.installation, records.NOTE, note),
        }
        await self.engine.post("volumes/create", f"note why {container[:12]} stops", order)

    async def read(self, container: str) -> Note | None:
        name = self.names.note(container)
        try:
            found = await self.engine.get(f"volumes/{name}", f"read why {container[:12]} stopped")
        except NotFound:
            return None
        return records.read(found.get("Labels"), Note, f"volume {name}")

    async def remove(self, container: str) -> None:
        """Absent is success."""
        with suppress(NotFound, Conflict):
            await self.engine.delete(f"volumes/{self.names.note(container)}", "remove a note")

    async def containers(self) -> set[str]:
        """Every container that a note is about."""
        seen = await self.engine.get("volumes", "list its notes", filters=self.names.filter)
        notes = (one for one in seen.get("Volumes") or () if _is_note(one))
        return {records.read(note["Labels"], Note, note["Name"]).container for note in notes}


def _is_note(volume: Mapping[str, Any]) -> bool:
    return (volume.get("Labels") or {}).get(records.KIND) == records.NOTE
