"""Named recipes: those that come with Paddock, and those kept in the data directory."""

import os
from pathlib import Path

import msgspec

from paddock.domain.errors import Broken, Conflict, InvalidRequest, NotFound
from paddock.domain.template import SourceKind, Template, TemplateSource

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
            "sudo",
            "unzip",
            "xz-utils",
        ),
    ),
)

BUILT_IN = {template.name: template for template in (BASE,)}


class Recipes:
    """By name. What an operator adds comes before what is built in."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

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
        """In the place of one of the same name."""
        self._directory.mkdir(parents=True, exist_ok=True)
        content = msgspec.json.format(msgspec.json.encode(template))
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
        if "/" in name or name.startswith("."):
            return None
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=Template)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, InvalidRequest) as error:
            raise Broken(
                f"the recipe {self._path(name)} cannot be read: {error}",
                remediation="correct or delete the file",
            ) from error

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"
