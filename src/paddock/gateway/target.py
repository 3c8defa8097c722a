"""Where a connection is to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A name, or a literal address."""

    name: str
    address: str
    port: int

    @property
    def host(self) -> str:
        return self.name or self.address

    @property
    def authority(self) -> str:
        return self.host if self.port == 80 else f"{self.host}:{self.port}"
