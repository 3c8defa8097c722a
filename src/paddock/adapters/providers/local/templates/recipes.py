"""Named recipes: those that come with Paddock, and those kept in the data directory."""

import os
from pathlib import Path
from typing import Any

import msgspec

from paddock.adapters.providers.local.storage.faults import explained
from paddock.domain.errors import Broken, Conflict, InvalidRequest, NotFound
from paddock.domain.template import SourceKind, Template, TemplateSource, is_name

BASE = Template(
    name="base",
    source=TemplateSource(
        kind=SourceKind.DEBIAN,
        reference="bookworm",
        packages=(
            "bash",
            "ca-certificates",
            "curl",
            "git",
            "iproute2",
            "jq",
            "less",
            "make",
            "ncurses-base",
            "ncurses-bin",
            "node@24.19.0",
            "openssh-client",
            "procps",
            "python-is-python3",
            "python3",
            "python3-pip",
            "python3-venv",
            "ripgrep",
            "rsync",
            "sudo",
            "unzip",
            "xz-utils",
        ),
    ),
)

CODE_INTERPRETER = Template(
    name="code-interpreter",
    source=TemplateSource(
        kind=SourceKind.DEBIAN,
        reference="bookworm",
        packages=(
            *BASE.source.packages,
            "python3-ipykernel",
            "python3-matplotlib",
            "python3-numpy",
            "python3-pandas",
        ),
    ),
)
"""Jupyter's kernel, and what notebooks usually import."""

BUILT_IN = {template.name: template for template in (BASE, CODE_INTERPRETER)}


class Recipes:
    """By name. What an operator adds comes before what is built in."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def directory(self) -> Path:
        return self._directory

    def get(self, name: str) -> Template:
        if (own := self._read(name)) is not None:
            return own
        if name in BUILT_IN:
            return BUILT_IN[name]
        known = ", ".join(sorted(template.name for template in self.all()))
        raise NotFound(
            f"there is no template {name!r}",
            remediation=f"use one of {known}, or add it with `paddock template add`",
        )

    def all(self) -> list[Template]:
        names = {path.stem for path in self._directory.glob("*.json")} | set(BUILT_IN)
        return [self.get(name) for name in sorted(names)]

    def add(self, template: Template) -> None:
        """In the place of one of the same name. Of one that is built in only what differs is kept,
        so that the rest goes on with it, as long as the disk is the same."""
        with explained(self._directory):
            self._write(template)

    def _write(self, template: Template) -> None:
        if template == BUILT_IN.get(template.name):
            self._path(template.name).unlink(missing_ok=True)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        content = msgspec.json.format(msgspec.json.encode(_kept(template)))
        draft = self._directory / f".{template.name}-{os.urandom(4).hex()}"
        draft.write_bytes(content)
        draft.rename(self._path(template.name))

    def remove(self, name: str) -> None:
        """Absent is success."""
        path = self._path(name)
        if name in BUILT_IN and not path.exists():
            raise Conflict(
                f"the template {name!r} is built in and cannot be removed",
                remediation="add one of the same name to use that instead",
            )
        path.unlink(missing_ok=True)

    def _read(self, name: str) -> Template | None:
        # A name that no template can have is not looked up: it may be a path to elsewhere.
        if not is_name(name):
            return None
        try:
            kept = msgspec.json.decode(self._path(name).read_bytes(), type=dict[str, Any])
            return msgspec.convert({**_fields(BUILT_IN.get(name)), **kept}, Template)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, InvalidRequest) as error:
            raise Broken(
                f"the recipe {self._path(name)} cannot be read: {error}",
                remediation="correct or delete the file",
            ) from error

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _kept(template: Template) -> dict[str, Any]:
    """What of it is written down."""
    whole, built_in = _fields(template), BUILT_IN.get(template.name)
    if built_in is None or built_in.digest() != template.digest():
        return whole
    same = _fields(built_in)
    return {name: value for name, value in whole.items() if value != same[name]}


def _fields(template: Template | None) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(template) if template else {}
    return fields
