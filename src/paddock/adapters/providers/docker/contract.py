"""What a sandbox expects of every image, added where an image of somebody else lacks it.

Templates of ours have it already. The one thing that matters is the user `user`: without it, every
command would run as root.
"""

import io
import tarfile

from paddock.adapters.providers.docker.engine import Engine
from paddock.domain.errors import NotFound

USER, UID = "user", 1000
_LARGEST = 1 << 20
_SHELL = "/bin/sh"


async def fulfil(engine: Engine, container: str) -> None:
    """Give a container that has not been started the user `user` with a home, unless it has one."""
    passwd = await _read(engine, container, "etc/passwd")
    if passwd is not None and _named(passwd):
        return
    group = await _read(engine, container, "etc/group")
    await engine.send(
        "PUT",
        f"containers/{container}/archive",
        f"add the user {USER} to container {container[:12]}",
        data=_additions(passwd or f"root:x:0:0:root:/root:{_SHELL}\n", group or "root:x:0:\n"),
        query={"path": "/"},
    )


def _named(table: str) -> bool:
    return any(line.startswith(f"{USER}:") for line in table.splitlines())


def _additions(passwd: str, group: str) -> bytes:
    files = {"etc/passwd": _with(passwd, f"{USER}:x:{UID}:{UID}::/home/{USER}:{_SHELL}")}
    if not _named(group):
        files["etc/group"] = _with(group, f"{USER}:x:{UID}:")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o644, len(content)
            archive.addfile(entry, io.BytesIO(content))
        home = tarfile.TarInfo(f"home/{USER}")
        home.type, home.mode, home.uid, home.gid = tarfile.DIRTYPE, 0o755, UID, UID
        archive.addfile(home)
        return closed_archive(archive, buffer)


def closed_archive(archive: tarfile.TarFile, buffer: io.BytesIO) -> bytes:
    """Close an archive and return it without padding.

    Podman stops reading at the end of the archive. It sometimes fails if more data is sent.
    """
    end = archive.offset + 2 * tarfile.BLOCKSIZE
    archive.close()
    return buffer.getvalue()[:end]


def _with(table: str, line: str) -> bytes:
    gap = "" if not table or table.endswith("\n") else "\n"
    return f"{table}{gap}{line}\n".encode(errors="surrogateescape")


async def _read(engine: Engine, container: str, path: str) -> str | None:
    """The text of a regular file, or None."""
    try:
        content = await engine.fetch(
            f"containers/{container}/archive",
            f"read /{path} of container {container[:12]}",
            query={"path": f"/{path}"},
        )
    except NotFound:
        return None
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isreg() else None
            if file is not None:
                return file.read(_LARGEST).decode(errors="surrogateescape")
    return None
