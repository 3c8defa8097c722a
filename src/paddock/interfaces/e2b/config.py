"""What an operator may set for clients of E2B's API."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class E2bConfig:
    """Settings under `[e2b]`."""

    internet: bool = False
    """Whether a sandbox reaches the internet unless its client denies it, as it would at E2B.
    Otherwise it reaches what the installation's rules allow, whatever `allow_internet_access` its
    client sends: older SDKs send `true` in every create."""
