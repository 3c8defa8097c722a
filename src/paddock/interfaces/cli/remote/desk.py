"""Somebody at a terminal who answers what is asked, as it comes."""

import asyncio
import json
import sys
from contextlib import suppress

import click

from paddock.interfaces.cli.output import printable
from paddock.interfaces.cli.remote.session import gathered, plain
from paddock.interfaces.client import AsyncApprovals, PaddockError, Server
from paddock.interfaces.client.results import ApprovalInfo, Event

_HELP = (
    "o [words]: once, t: this sandbox, a sandbox|app|template|preset|team: always, d [why]: deny, "
    "s: skip"
)
_ERASED = "\r\x1b[K"
_REQUESTED = "approval.requested"


class Desk:
    """One question at a time, the oldest first. Others may answer as well."""

    def __init__(self, server: Server, sandbox: str, *, as_json: bool) -> None:
        self._server = server
        self._sandbox = sandbox
        self._as_json = as_json
        self._pending: dict[str, str] = {}
        """Ids, and what is shown of them."""
        self._is_prompted = False

    async def attend(self) -> None:
        """Until interrupted, or until nothing more can be typed where somebody could."""
        tasks = [asyncio.create_task(self._follow())]
        if self._is_attended:
            tasks.append(asyncio.create_task(self._type()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in tasks:
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each

    @property
    def _is_attended(self) -> bool:
        return not self._as_json and sys.stdin is not None and sys.stdin.isatty()

    async def _follow(self) -> None:
        opened = asyncio.Event()
        events = AsyncApprovals.follow(
            sandbox=self._sandbox, opened=opened.set, server=self._server
        )
        coming = asyncio.ensure_future(anext(events))
        # Those that were there before are read once the stream is open, so that none is missed.
        opening = asyncio.ensure_future(opened.wait())
        await asyncio.wait({opening, coming}, return_when=asyncio.FIRST_COMPLETED)
        opening.cancel()
        waiting = AsyncApprovals.list(
            states=["pending"], sandbox=self._sandbox, server=self._server
        )
        for each in reversed(await gathered(waiting)):
            self._asked(each)
        self._prompt()
        while True:
            self._hear(await coming)
            coming = asyncio.ensure_future(anext(events))

    def _asked(self, each: ApprovalInfo) -> None:
        if self._as_json:
            click.echo(json.dumps(plain(each)))
            return
        self._pending[each.id] = _line(each.sandbox, each.kind, each.title, each.why)
        self._say(f"{each.id}  {self._pending[each.id]}")

    def _hear(self, event: Event) -> None:
        if self._as_json:
            click.echo(json.dumps(plain(event)))
            return
        data = event.data
        known = str(data["approval"])
        shown = _line(data["name"], data["kind"], data["title"], data["why"])
        if event.kind == _REQUESTED:
            if known not in self._pending:
                self._pending[known] = shown
                self._say(f"{known}  {shown}")
        else:
            self._pending.pop(known, None)
            by = f" by {data['answered_by']}" if data.get("answered_by") else ""
            self._say(f"{known}  {data['state']}{by}  {shown}")
        self._prompt()

    def _say(self, line: str) -> None:
        """In place of what is asked, which comes again below it."""
        click.echo(f"{_ERASED if self._is_prompted else ''}{line}")
        self._is_prompted = False

    def _prompt(self) -> None:
        if self._pending and self._is_attended and not self._is_prompted:
            click.echo(f"{next(iter(self._pending.values()))}? ", nl=False)
            self._is_prompted = True

    async def _type(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self._say(_HELP)
        while line := await reader.readline():
            self._is_prompted = False
            words = line.decode(errors="replace").split()
            if self._pending and words:
                await self._answer(next(iter(self._pending)), words)
            self._prompt()

    async def _answer(self, approval: str, words: list[str]) -> None:
        server = self._server
        try:
            match words:
                case ["o", *note]:
                    await AsyncApprovals.allow(approval, note=" ".join(note), server=server)
                case ["t"]:
                    await AsyncApprovals.allow(approval, task=True, server=server)
                case ["a", ("sandbox" | "app" | "template" | "preset" | "team") as level]:
                    await AsyncApprovals.allow(approval, always=level, server=server)
                case ["d", *note]:
                    await AsyncApprovals.deny(approval, note=" ".join(note), server=server)
                case ["s"]:
                    pass
                case _:
                    self._say(f"that is none of: {_HELP}")
                    return
        except PaddockError as error:
            click.echo(str(error), err=True)
        self._pending.pop(approval, None)


def _line(sandbox: str, kind: str, title: str, why: str) -> str:
    return f"{sandbox}  {kind}  {printable(title)}  ({printable(why)})"
