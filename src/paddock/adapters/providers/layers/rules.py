"""What a key, a label, a variable or a port has to look like on every provider."""

import re
from collections.abc import Mapping
from typing import NoReturn

from paddock.domain.errors import InvalidRequest
from paddock.domain.ids import is_id
from paddock.domain.volume import VOLUME_PREFIX
from paddock.ports.provider import SandboxSpec

_KEY = re.compile(r"[!-~]{1,128}")
_LABEL_KEY = re.compile(r"[!-<>-~]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_VALUE_CHARS = 256
_PORTS = range(1, 65536)


def _refuse(message: str, remediation: str) -> NoReturn:
    raise InvalidRequest(message, remediation=remediation)


def check_key(key: str) -> None:
    if not _KEY.fullmatch(key):
        _refuse(
            f"key {key[:140]!r} is not usable",
            "use 1 to 128 printable ASCII characters without spaces",
        )


def check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            _refuse(
                f"label {key[:80]!r} is not usable",
                "use 1 to 63 printable ASCII characters without spaces and '='",
            )
        if len(value) > _LABEL_VALUE_CHARS or not value.isprintable():
            _refuse(
                f"the value of label {key} is not usable: it has {len(value)} characters",
                f"use at most {_LABEL_VALUE_CHARS} printable characters",
            )


def check_env(env: Mapping[str, str]) -> None:
    """The values may be secrets: a message names the variable, never what is in it."""
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            _refuse(
                f"environment variable {name[:80]!r} has no usable name",
                "begin with a letter or '_' and go on with letters, digits and '_'",
            )
        if "\0" in value:
            _refuse(
                f"the value of environment variable {name} contains a NUL character",
                "leave it out: no process can be given such a value",
            )


def check_volume(volume: str) -> None:
    if not is_id(volume, VOLUME_PREFIX):
        _refuse(f"{volume[:80]!r} is no id of a volume", f"use one like {VOLUME_PREFIX}_01…")


def check_port(port: int) -> None:
    if isinstance(port, bool) or port not in _PORTS:
        _refuse(f"port {port!r} does not exist", "use a number from 1 to 65535")


def check_source(spec: SandboxSpec) -> None:
    if bool(spec.template) is (spec.snapshot is not None):
        found = "both" if spec.template else "neither"
        _refuse(
            f"a sandbox starts from a template or from a snapshot; {found} was given",
            "give exactly one of the two",
        )


def check_no_source(spec: SandboxSpec) -> None:
    if spec.template or spec.snapshot is not None:
        _refuse(
            "a fork starts from the sandbox it is made of; its spec names another source",
            "leave template and snapshot out of the spec",
        )
