"""What an operator may set for clients of E2B's API."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class E2bConfig:
    """Settings under `[e2b]`."""

    internet: bool = False
    """Whether a sandbox reaches the internet when its client says nothing of it, as it would at
    E2B. Otherwise it reaches what the installation's rules allow, and all only when it asks for
    that with `allow_internet_access=True`."""
