"""`paddock stop`, `start`, `pause`, `resume`, `archive`, `rm`: one thing done to several."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import click

from paddock.interfaces.cli.failures import say
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.remote.session import connected, sandboxes_argument
from paddock.interfaces.client import AsyncSandbox, NotFound, PaddockError, Server

Verb = Callable[[AsyncSandbox], Awaitable[None]]


@dataclass
class _Batch:
    """What fails is said, and the rest is still done."""

    invocation: Invocation
    verb: Verb
    done: str
    missing_ok: bool = False
    code: int = 0
    finished: list[str] = field(default_factory=list)

    async def run(self, names: Sequence[str]) -> int:
        async with connected() as server:
            for name in names:
                await self._do(server, name)
        if self.invocation.json:
            print_json({"sandboxes": self.finished, "done": self.done})
        return self.code

    async def _do(self, server: Server, name: str) -> None:
        try:
            await self.verb(await AsyncSandbox.connect(name, server=server))
        except PaddockError as error:
            if not (self.missing_ok and isinstance(error, NotFound)):
                self.code = say(error, as_json=self.invocation.json)
            return
        self.finished.append(name)
        if not self.invocation.json:
            click.echo(f"{name} {self.done}")


def _command(name: str, done: str, verb: Verb, text: str) -> click.Command:
    @click.command(name, help=text)
    @sandboxes_argument
    @output_options
    @pass_invocation
    def act(invocation: Invocation, names: Sequence[str]) -> int:
        return run_async(_Batch(invocation, verb, done).run(names))

    return act


stop = _command("stop", "stopped", lambda box: box.stop(), "Stop sandboxes; the disk is kept.")
start = _command("start", "started", lambda box: box.start(), "Start stopped sandboxes.")
pause = _command("pause", "paused", lambda box: box.pause(), "Freeze sandboxes, memory and all.")
resume = _command("resume", "resumed", lambda box: box.resume(), "Let paused sandboxes go on.")
archive = _command(
    "archive",
    "archived",
    lambda box: box.archive(),
    "Compress the disks of stopped sandboxes; `start` brings them back.",
)


@click.command()
@sandboxes_argument
@click.option("-f", "--force", is_flag=True, help="Even if work is lost; absent is no error.")
@output_options
@pass_invocation
def rm(invocation: Invocation, names: Sequence[str], force: bool) -> int:
    """Remove sandboxes with everything in them."""

    async def remove(box: AsyncSandbox) -> None:
        await box.kill(force=force)

    return run_async(_Batch(invocation, remove, "removed", missing_ok=force).run(names))
