"""What a sandbox starts from."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum

from paddock.domain import ignoring
from paddock.domain.errors import InvalidRequest

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_NOT_ON_DISK = ("name", "env", "user", "workdir", "hardened", "runtime", "snapshot_ignore")


def is_name(text: str) -> bool:
    """Whether a template can have this name."""
    return _NAME.fullmatch(text) is not None


def is_image(reference: str) -> bool:
    """Whether this can only be an image's reference: no template's name has these characters."""
    return ":" in reference or "/" in reference


def image_name(reference: str) -> str:
    """Return the name of the template that is made of an image's reference."""
    return f"image-{hashlib.sha256(reference.encode()).hexdigest()[:12]}"


class SourceKind(StrEnum):
    """Where a template's root file system comes from."""

    DEBIAN = "debian"
    """Built with mmdebstrap: `reference` is the suite, `packages` what is installed."""
    IMAGE = "image"
    """An OCI image: `oci:PATH[:TAG]`, `oci-archive:FILE`, `docker:NAME` (the engine's own) or a
    registry's name."""
    DIRECTORY = "directory"
    TAR = "tar"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """The root file system before the set-up commands ran."""

    kind: SourceKind
    reference: str
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A named recipe. Equal recipes have equal digests and are built once."""

    name: str
    source: TemplateSource
    setup: tuple[str, ...] = ()
    """Shell commands run as root in a sandbox of the source, in order."""
    env: tuple[tuple[str, str], ...] = ()
    user: str = "user"
    workdir: str = ""
    """Empty means the user's home."""
    hardened: bool = False
    """Asks for no-new-privileges even where a user namespace would make sudo harmless."""
    runtime: str = ""
    """crun, runc or runsc; empty means the provider's choice."""
    snapshot_ignore: tuple[str, ...] = ()
    """Paths that snapshots leave out unless everything is asked for; see `domain.ignoring`."""

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise InvalidRequest(
                f"template name {self.name!r} is not usable",
                remediation="use a-z, 0-9, '.', '_' or '-'; at most 63; ends are a-z or 0-9",
            )
        ignoring.check_workdir(self.workdir)
        work = ignoring.places_of_work(self.user, self.workdir)
        ignoring.parsed(self.snapshot_ignore, work)

    def digest(self) -> str:
        """Of everything that decides what is on the disk; the name does not."""
        content = asdict(self)
        for detail in _NOT_ON_DISK:
            del content[detail]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def image_template(reference: str) -> Template:
    """Return the recipe of a sandbox that names an image instead of a template."""
    return Template(image_name(reference), TemplateSource(SourceKind.IMAGE, reference))


@dataclass(frozen=True, slots=True)
class Removed:
    """A build that is gone, and the room it had taken."""

    digest: str
    freed_bytes: int
