"""Building the packed guest: one zip file that an image's own Python runs.

Run as a program inside an image it makes the zip with that Python's byte code:
`python3 pack.py OUT.zip GUEST_DIR H11_DIR`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
import sys
import zipfile

_MAIN = """\
import sys
# Neither is needed, and without OpenSSL the guest is milliseconds faster and megabytes smaller.
sys.modules["ssl"] = sys.modules["_hashlib"] = None
import gc
gc.disable()  # until all is loaded
from paddock.guest.main import main
main(sys.argv[1:])
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same sources give the same bytes


def build(target: str, *, compiled: bool = True) -> str:
    """Write the guest of this installation; with byte code of the running interpreter if wanted."""
    return _write(target, _files(*_installed()), compiled)


def ensure(directory: str) -> str:
    """The guest of this installation, built unless it is there: its content is in its name.

    Looked at anew each time, so that an upgrade is noticed at once, whoever made what is there.
    """
    files = _files(*_installed())
    content = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name, source in sorted(files.items()):
        content.update(b"%s\0%d\0%s" % (name.encode(), len(source), source))
    target = os.path.join(directory, f"guest-{content.hexdigest()[:16]}.zip")
    return target if os.path.exists(target) else _write(target, files, compiled=True)


def build_from(target: str, guest: str, h11: str, *, compiled: bool = True) -> str:
    return _write(target, _files(guest, h11), compiled)


def _installed() -> tuple[str, str]:
    import h11

    return os.path.dirname(os.path.abspath(__file__)), os.path.dirname(h11.__file__)


def _files(guest: str, h11: str) -> dict[str, bytes]:
    files = {"__main__.py": _MAIN.encode(), "paddock/__init__.py": b""}
    for prefix, directory in (("paddock/guest", guest), ("h11", h11)):
        files.update(_sources(prefix, directory))
    return files


def _write(target: str, files: dict[str, bytes], compiled: bool) -> str:
    """Whole or not at all, also when several processes write the same at once."""
    part = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.part"
    if compiled:
        files = {**files, **{f"{name}c": _compile(name, code) for name, code in files.items()}}
    try:
        with zipfile.ZipFile(part, "x", zipfile.ZIP_STORED) as archive:
            for name, content in sorted(files.items()):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise
    return target


def _sources(prefix: str, directory: str) -> dict[str, bytes]:
    found = {}
    for root, directories, names in os.walk(directory):
        directories[:] = [d for d in directories if d not in ("__pycache__", "tests")]
        inside = os.path.relpath(root, directory)
        base = prefix if inside == "." else f"{prefix}/{inside}"
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(root, name), "rb") as file:
                    found[f"{base}/{name}"] = file.read()
    return found


def _compile(name: str, source: bytes) -> bytes:
    """Byte code that zipimport takes without looking at the source again (unchecked, PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    return header + marshal.dumps(code)


if __name__ == "__main__":
    build_from(sys.argv[1], sys.argv[2], sys.argv[3])
