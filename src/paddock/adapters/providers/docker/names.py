"""What our things are called on an engine, so that it arbitrates between control planes."""

import hashlib
import json
import re
from dataclasses import dataclass

PROVIDER = "docker"
INSTALLATION = "paddock.installation"
NEW = "-new"
"""What is not whole yet ends so: it is renamed when it is, and swept when it never will be."""


def _hash(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:length]


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one installation."""

    installation: str

    @property
    def filter(self) -> str:
        """Everything of this installation. One label only: Podman 4 finds no image by two."""
        return json.dumps({"label": [f"{INSTALLATION}={self.installation}"]})

    @property
    def tag(self) -> str:
        return _hash(self.installation, 8)

    def container(self, key: str) -> str:
        return f"paddock-{self.tag}-{_hash(key, 32)}"

    def slip(self, container: str, what: str) -> str:
        """The volume whose labels say something of a container."""
        return f"paddock-{self.tag}-{container[:32]}-{what}"

    def snapshot(self, key: str) -> str:
        return f"{self.repository}:{_hash(key, 32)}"

    @property
    def repository(self) -> str:
        return f"paddock/snapshot-{self.tag}"

    @property
    def network(self) -> str:
        return f"paddock-{self.tag}"

    @property
    def bridge(self) -> str:
        """At most 15 characters: it names a network interface."""
        return f"pdkd{self.tag}"

    @property
    def table(self) -> str:
        return f"paddock_docker_{self.tag}"


def template_image(template: str, digest: str) -> str:
    """Installations share these: the digest says what is in it."""
    return f"paddock/{re.sub(r'[._-]+', '-', template)}:{digest}"
