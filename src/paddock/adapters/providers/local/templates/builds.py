"""What a template is once it is built, and the note that lies beside it."""

import re
from pathlib import Path

import msgspec

from paddock.domain.errors import Broken

NOTE = "template.json"
_DIGEST = re.compile(r"^[0-9a-f]{32}$")


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a build. `root` names the build that holds the root file system; often it is itself."""

    digest: str
    root: str
    origin: str
    created_at: float
    seeded: bool = False
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    workdir: str = ""


class BuiltTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """Ready to make sandboxes of. Env, user and workdir are what the image itself asks for."""

    digest: str
    lower: Path
    """The root file system, with the ids of the image; read-only for everybody."""
    seed: Path | None
    """A volume to clone for each sandbox, where set-up commands or a snapshot made one."""
    env: tuple[tuple[str, str], ...]
    user: str
    workdir: str
    root: str
    """The digest of the build that holds `lower`."""
    origin: str
    created_at: float


def write_note(directory: Path, note: Note) -> None:
    (directory / NOTE).write_bytes(msgspec.json.format(msgspec.json.encode(note)))


def read_note(directory: Path) -> Note | None:
    """None when no build stands there."""
    try:
        return msgspec.json.decode((directory / NOTE).read_bytes(), type=Note)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise Broken(
            f"{directory / NOTE} cannot be read: {error}",
            remediation=f"delete {directory}; the template is built again when it is next used",
        ) from error


def read_build(shelf: Path, digest: str) -> BuiltTemplate | None:
    """None when it is not there, or not all of it."""
    note = read_note(shelf / digest) if is_digest(digest) else None
    if note is None:
        return None
    lower, seed = shelf / note.root / "rootfs", shelf / digest / "seed"
    if not lower.is_dir() or (note.seeded and not seed.is_dir()):
        return None
    return BuiltTemplate(
        digest=digest,
        lower=lower,
        seed=seed if note.seeded else None,
        env=note.env,
        user=note.user,
        workdir=note.workdir,
        root=note.root,
        origin=note.origin,
        created_at=note.created_at,
    )


def is_digest(text: str) -> bool:
    return bool(_DIGEST.match(text))
