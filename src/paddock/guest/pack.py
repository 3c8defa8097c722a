"""Building the packed guest: one zip file that an image's own Python runs.

Run as a program inside an image it makes the zip with that Python's byte code:
`python3 pack.py OUT.zip GUEST_DIR H11_DIR`.
"""

from __future__ import annotations

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
    import h11

    guest = os.path.dirname(os.path.abspath(__file__))
    return build_from(target, guest, os.path.dirname(h11.__file__), compiled=compiled)


def build_from(target: str, guest: str, h11: str, *, compiled: bool = True) -> str:
    files = {"__main__.py": _MAIN.encode(), "paddock/__init__.py": b""}
    for prefix, directory in (("paddock/guest", guest), ("h11", h11)):
        files.update(_sources(prefix, directory))
    part = f"{target}.part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for name, source in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
            if compiled:
                archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), _compile(name, source))
    os.replace(part, target)
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
