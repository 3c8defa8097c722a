"""What seals values, so that who has the database has nothing."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value that only the vault opens, and which of its keys."""

    text: str
    key_id: str


class Vault(Protocol):
    """Keys of the installation. Several may open; one seals."""

    @property
    def key_id(self) -> str:
        """The key that seals now."""
        ...

    def seal(self, value: bytes, associated: bytes) -> Sealed: ...

    def open(self, sealed: str, associated: bytes) -> bytes:
        """Broken when it was changed, or sealed for another place; Unavailable when the key that
        it was sealed with is not here."""
        ...

    def begin_rotation(self) -> str:
        """The id of the key to seal with from now on: a new one, or that of a rotation which was
        interrupted. The earlier ones still open."""
        ...

    def end_rotation(self) -> None:
        """Nothing is sealed with the earlier keys any more: let them go."""
        ...
