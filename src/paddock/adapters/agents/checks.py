"""What no agent can be started with, said before a sandbox is made."""

import re
from collections.abc import Collection

from paddock.domain.agent import Brief
from paddock.domain.errors import InvalidRequest

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,199}")
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def session_of(name: str) -> str:
    """What an agent says that it can be resumed by, if that can be one: it is an argument later."""
    return name if _SESSION.fullmatch(name) else ""


def uuid_or_nothing(name: str) -> str:
    return name if _UUID.fullmatch(name) else ""


def check_model(agent: str, model: str) -> None:
    """A model that begins with a dash would be read as an option."""
    if model and not _MODEL.fullmatch(model):
        raise InvalidRequest(
            f"{model!r} cannot be the name of a model of {agent}",
            remediation="use letters, digits and . _ : / @ [ ] -, beginning with a letter or digit",
        )


def check_options(agent: str, brief: Brief, known: Collection[str] = ()) -> None:
    if unknown := sorted(set(brief.options) - set(known)):
        raise InvalidRequest(
            f"{agent} does not know the option {', '.join(unknown)}",
            remediation=f"it knows {', '.join(sorted(known)) or 'no options'}",
        )


def is_variable(name: str) -> bool:
    return bool(_VARIABLE.fullmatch(name))


def check_command(agent: str, brief: Brief) -> None:
    """Of an agent that is whatever program one likes."""
    command = brief.options.get("command")
    is_list = isinstance(command, list | tuple) and all(isinstance(part, str) for part in command)
    if is_list and command and command[0] and not any("\0" in part for part in command):
        return
    raise InvalidRequest(
        f"{agent} has no program to run: its option command is {command!r}"[:300],
        remediation='give a list of arguments, such as {"command": ["my-agent", "--quiet"]}',
    )
