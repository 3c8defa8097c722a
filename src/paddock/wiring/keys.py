"""What is in the data directory for its owner alone: the vault's key, and the first token."""

import os
import tempfile
from pathlib import Path

from paddock.adapters.vault import VARIABLE, KeyVault
from paddock.ports.vault import Vault


def open_vault(data: Path) -> Vault:
    made = KeyVault.open_place(data, os.environ)
    os.environ.pop(VARIABLE, None)  # what is started from here needs no key
    return made


def keep(path: Path, token: str) -> None:
    """Readable by its owner only, and whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).rename(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
