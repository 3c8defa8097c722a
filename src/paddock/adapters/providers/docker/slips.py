"""What is known of containers and changes: labels cannot be changed, so each has a volume of its
own that carries it in the volume's labels, and is made anew for every change.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.names import Names
from paddock.domain.errors import Conflict, NotFound


class Slip(Protocol):
    """What is known of one container."""

    @property
    def container(self) -> str: ...


_S = TypeVar("_S", bound=Slip)


class Slips(Generic[_S]):
    """Those of one kind and one installation."""

    def __init__(
        self, engine: Engine, names: Names, form: type[_S], *, kind: str, called: str
    ) -> None:
        self._engine = engine
        self._names = names
        self._form = form
        self._kind = kind
        self._called = called

    async def write(self, slip: _S) -> None:
        await self.remove(slip.container)
        name = self._name(slip.container)
        order = {
            "Name": name,
            "Driver": "local",
            "Labels": records.labels(self._names.installation, self._kind, slip),
        }
        await self._engine.post("volumes/create", f"write {name}", order)

    async def read(self, container: str) -> _S | None:
        name = self._name(container)
        try:
            found = await self._engine.get(f"volumes/{name}", f"read {name}")
        except NotFound:
            return None
        return self._of(found)

    async def remove(self, container: str) -> None:
        """Absent is success."""
        with suppress(NotFound, Conflict):
            name = self._name(container)
            await self._engine.delete(f"volumes/{name}", f"remove {name}")

    async def all(self) -> Sequence[_S]:
        return [self._of(volume) for volume in await self._volumes()]

    async def _volumes(self) -> Iterator[Mapping[str, Any]]:
        seen = await self._engine.get(
            "volumes", f"list each {self._kind}", filters=self._names.filter
        )
        return (
            one
            for one in seen.get("Volumes") or ()
            if (one.get("Labels") or {}).get(records.KIND) == self._kind
        )

    def _of(self, volume: Mapping[str, Any]) -> _S:
        return records.read(volume.get("Labels"), self._form, f"volume {volume['Name']}")

    def _name(self, container: str) -> str:
        return self._names.slip(container, self._called)
