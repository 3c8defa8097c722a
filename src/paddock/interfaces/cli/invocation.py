"""One use of the command line: what was said before the command, and what commands are given."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from paddock.interfaces.cli.toolbox import Toolbox

MakeToolbox = Callable[[Path | None, str | None], "Toolbox"]


class Invocation:
    """What click hands to every command."""

    def __init__(self, make: MakeToolbox) -> None:
        self._make = make
        self._tools: Toolbox | None = None
        self.config: Path | None = None
        self.log_level: str | None = None
        self.json = False

    @property
    def tools(self) -> "Toolbox":
        """Made when first needed: `--help` reads no settings and imports no provider."""
        if self._tools is None:
            self._tools = self._make(self.config, self.log_level)
        return self._tools


pass_invocation = click.make_pass_decorator(Invocation)
