"""A vault of AES-256-GCM keys, from the environment or from a file that only its owner reads."""

import base64
import binascii
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from paddock.domain.errors import Broken, InvalidRequest, Unavailable
from paddock.ports.vault import Sealed

VARIABLE = "PADDOCK_MASTER_KEY"
FILE = "master-key"
_BYTES = 32
_NONCE = 12
_FORM = "v1"
_MAKE_ONE = "`head -c 32 /dev/urandom | base64` makes one"


class KeyVault:
    """The first key seals, all of them open. A sealed text is `v1.KEY-ID.BASE64`."""

    def __init__(self, keys: Sequence[bytes], file: Path | None = None) -> None:
        self._file = file
        self._mark: tuple[int, int] | None = None
        self._take(keys)

    @classmethod
    def open_place(cls, place: Path, environ: Mapping[str, str]) -> "KeyVault":
        """Of the variable if it is set, otherwise of the file there, made on the first start."""
        if text := environ.get(VARIABLE, "").strip():
            return cls(_parse(text.split(","), f"the variable {VARIABLE}"))
        file = place / FILE
        if not file.exists():
            _write(file, [secrets.token_bytes(_BYTES)], only_new=True)
        return cls(_read(file), file)

    @property
    def key_id(self) -> str:
        self._catch_up()
        return next(iter(self._keys))

    def seal(self, value: bytes, associated: bytes) -> Sealed:
        key_id, nonce = self.key_id, secrets.token_bytes(_NONCE)
        data = nonce + AESGCM(self._keys[key_id]).encrypt(nonce, value, associated)
        text = base64.urlsafe_b64encode(data).decode()
        return Sealed(f"{_FORM}.{key_id}.{text}", key_id)

    def open(self, sealed: str, associated: bytes) -> bytes:
        form, _, rest = sealed.partition(".")
        key_id, _, text = rest.partition(".")
        if form != _FORM:
            raise Broken(
                f"a value is sealed in the form {form[:10]!r}, which is not known here",
                remediation="was a newer Paddock here? use that one",
            )
        try:
            data = base64.urlsafe_b64decode(text)
            return AESGCM(self._key(key_id)).decrypt(data[:_NONCE], data[_NONCE:], associated)
        except (InvalidTag, ValueError):
            raise Broken(
                "a sealed value does not open: it was changed, or moved from another place",
                remediation="set it again, and look at who can write to the database",
            ) from None

    def begin_rotation(self) -> str:
        self._catch_up()
        if self._file is None:
            if len(self._keys) == 1:
                raise InvalidRequest(
                    f"the master key comes from {VARIABLE}, so only you can make a new one",
                    remediation=f"set {VARIABLE}=NEW,OLD, restart, and rotate; {_MAKE_ONE}",
                )
        elif len(self._keys) == 1:
            _write(self._file, [secrets.token_bytes(_BYTES), *self._keys.values()])
        return self.key_id

    def end_rotation(self) -> None:
        if self._file is not None and len(self._keys) > 1:
            _write(self._file, [self._keys[self.key_id]])

    def _catch_up(self) -> None:
        """Another process may have rotated: a value sealed with a key of before would be lost."""
        if self._file is None:
            return
        status = self._file.stat()
        mark = (status.st_ino, status.st_mtime_ns)
        if mark != self._mark:
            self._take(_read(self._file))
            self._mark = mark

    def _take(self, keys: Sequence[bytes]) -> None:
        self._keys = {_identify(key): key for key in keys}

    def _key(self, key_id: str) -> bytes:
        self._catch_up()
        if key_id not in self._keys:
            raise Unavailable(
                f"a value is sealed with key {key_id[:16]}, which is not here",
                remediation=f"add it to {VARIABLE}, or restore the file {FILE} of the data "
                "directory",
            )
        return self._keys[key_id]


def _identify(key: bytes) -> str:
    """Tells keys apart, and nothing about them."""
    return hashlib.sha256(b"paddock key id\0" + key).hexdigest()[:16]


def _parse(lines: Sequence[str], origin: str) -> list[bytes]:
    keys = []
    for line in filter(None, map(str.strip, lines)):
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _BYTES:
            raise InvalidRequest(
                f"{origin} holds something that is not the base64 of {_BYTES} bytes",
                remediation=_MAKE_ONE,
            )
        keys.append(key)
    if not keys:
        raise InvalidRequest(f"{origin} holds no key", remediation=_MAKE_ONE)
    return keys


def _read(file: Path) -> list[bytes]:
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(handle) as opened:
        status = os.fstat(handle)
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InvalidRequest(
                f"{file} can be read by others: its mode is {stat.S_IMODE(status.st_mode):o}",
                remediation=f"`chmod 600 {file}`, and rotate if somebody may have read it",
            )
        return _parse(opened.read().splitlines(), str(file))


def _write(file: Path, keys: Sequence[bytes], *, only_new: bool = False) -> None:
    """Whole or not at all, and never readable by anyone else."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w") as opened:
            opened.writelines(base64.b64encode(key).decode() + "\n" for key in keys)
            opened.flush()
            os.fsync(opened.fileno())
        if only_new and _linked(name, file):
            return
        if not only_new:
            Path(name).rename(file)
    finally:
        Path(name).unlink(missing_ok=True)


def _linked(name: str, file: Path) -> bool:
    """Unlike a rename, a link never replaces what another process was quicker to make."""
    try:
        os.link(name, file)
    except FileExistsError:
        return False
    return True
