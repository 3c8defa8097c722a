"""What E2B's API needs beside what our own has."""

from dataclasses import dataclass

from paddock.interfaces.e2b.config import E2bConfig
from paddock.services.builds import Builds
from paddock.services.headers import Headers
from paddock.services.passages import Passages


@dataclass(frozen=True, slots=True)
class E2bServices:
    """The way through to guests, a team's own templates, and headers of sandboxes' own."""

    passages: Passages
    builds: Builds
    headers: Headers
    config: E2bConfig
