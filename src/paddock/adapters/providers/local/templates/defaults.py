"""What an image itself says about how its programs are run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Defaults:
    """Empty means that it says nothing."""

    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    workdir: str = ""
