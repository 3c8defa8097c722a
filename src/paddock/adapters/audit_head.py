"""The end of the audit log in a file of its own, readable by its owner only."""

import json
import logging
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import msgspec

from paddock.domain.errors import Unavailable
from paddock.ports.audit_head import Noted

_log = logging.getLogger(__name__)


class AuditHeadFile:
    """The port's `AuditHead`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Noted | None:
        try:
            return msgspec.convert(json.loads(self._path.read_bytes()), Noted)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.ValidationError) as error:
            _log.error(
                "noted end of the audit log not readable",
                extra={"path": str(self._path), "error": str(error)},
            )
            return None

    def write(self, noted: Noted) -> None:
        name = ""
        try:
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            with os.fdopen(handle, "w") as file:
                json.dump(asdict(noted), file)
            Path(name).rename(self._path)
        except OSError as error:
            if name:
                Path(name).unlink(missing_ok=True)
            raise Unavailable(
                f"the end of the audit log could not be noted in {self._path}: {error.strerror}",
                remediation="is the data directory writable, and not full?",
            ) from error
