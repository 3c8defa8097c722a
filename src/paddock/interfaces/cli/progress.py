"""Long work, shown while it lasts: a bar on a terminal, a line per stage elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class Display:
    """Begins with the first thing there is to say, so that quick work shows nothing."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tell(self, text: str, fraction: float | None) -> None:
        """What is being done now, and how much of it is."""
        if sys.stderr.isatty():
            self._draw(text, fraction)
        elif text != self._last:
            click.echo(f"… {text}", err=True)
        self._last = text

    def close(self) -> None:
        """Wipe it away; whoever writes to the terminal next has it for itself."""
        bar, self._bar, self._task = self._bar, None, None
        if bar is not None:
            bar.stop()

    def _draw(self, text: str, fraction: float | None) -> None:
        bar = self._bar or self._begin()
        if self._task is None:
            self._task = bar.add_task(text, total=None)
        total = None if fraction is None else 1.0
        bar.update(self._task, description=text, total=total, completed=fraction or 0.0)

    def _begin(self) -> "Bar":
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        return self._bar
