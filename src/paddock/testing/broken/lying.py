"""Guests that do not do what they say; a client that lies stands for each of them."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from paddock.domain.errors import Conflict, NotFound
from paddock.domain.guest import CommandResult, GuestAddress
from paddock.domain.reason import Reason
from paddock.guest_client import Guest
from paddock.guest_client.files import Entry, Files
from paddock.guest_client.runs import Run, Runs, TailEvent
from paddock.testing.broken.defect import Defect
from paddock.testing.conformance.subject import Terms
from paddock.testing.records import Record
from paddock.testing.reference import TEMPLATE, ReferenceProvider


class ZeroExit(Guest):
    """Calls everything a success."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        return replace(await super().exec(argv, **options), exit_code=0)


class MixedStreams(Guest):
    """Has one stream for output and errors."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        result = await super().exec(argv, **options)
        return replace(result, stdout=result.stdout + result.stderr, stderr=b"")


class NoStdin(Guest):
    """Does not pass on what it is given."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        return await super().exec(argv, **{**options, "stdin": b""})


class TextOnly(Guest):
    """Takes all output for text."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        result = await super().exec(argv, **options)
        return replace(result, stdout=_as_text(result.stdout))


class ThroughAShell(Guest):
    """Lets a shell read the arguments again."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        program, *rest = argv
        line = " ".join([program, *map(_half_quoted, rest)])
        return await super().exec(["sh", "-c", line], **options)


class NoCwd(Guest):
    """Runs everything in the same place."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        return await super().exec(argv, **{**options, "cwd": None})


class OneDesk(Guest):
    """Works on what was put there last."""

    _input = b""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        self._input = options.pop("stdin", b"")
        await asyncio.sleep(0.02)
        return await super().exec(argv, stdin=self._input, **options)


class ForgetsOutputAtTheDeadline(Guest):
    """Throws away what a late command had said."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        result = await super().exec(argv, **options)
        return replace(result, stdout=b"") if result.exit_code == 124 else result


class LeavesTheTree(Guest):
    """Reports the end at a deadline without ending anything."""

    async def exec(self, argv: Sequence[str], **options: Any) -> CommandResult:
        if "timeout" not in options:
            return await super().exec(argv, **options)
        line = f"{shlex.join(argv)} >out.late 2>err.late &"
        await super().exec(["sh", "-c", line])
        await asyncio.sleep(options["timeout"])
        said = await super().exec(["cat", "out.late"])
        return CommandResult(124, said.stdout, b"", Reason.DEADLINE)


class TextFiles(Files):
    """Takes all files for text."""

    async def write(self, path: str, data: bytes, *, user: str = "") -> None:
        await super().write(path, _as_text(data), user=user)


class PlainNames(Files):
    """Shows names as a terminal would."""

    async def list(self, path: str, *, depth: int = 1, user: str = "") -> list[Entry]:
        found = await super().list(path, depth=depth, user=user)
        return [replace(entry, name=entry.name.split("\n")[0]) for entry in found]


class KeepsFiles(Files):
    """Says that it has removed something."""

    async def remove(self, path: str, *, user: str = "") -> None:
        await self.stat(path, user=user)


class TellsTwice(Runs):
    """Begins at the beginning, whatever was read before."""

    async def tail(
        self, key: str, *, stream: str = "", offset: int = 0, follow: bool = True
    ) -> AsyncIterator[TailEvent]:
        async for event in super().tail(key, stream=stream, follow=follow):
            yield event


class NewRunEachTime(Runs):
    """Does not know the keys of runs."""

    async def start(self, key: str, argv: Sequence[str], **options: Any) -> Run:
        with suppress(NotFound, Conflict):
            await super().signal(key, "SIGKILL")
        with suppress(NotFound):
            async for _ in super().tail(key):
                pass
            await super().ack(key)
        return await super().start(key, argv, **options)


def _with(files: type[Files] = Files, runs: type[Runs] = Runs) -> type[Guest]:
    class Lying(Guest):
        def __init__(self, address: GuestAddress) -> None:
            super().__init__(address)
            self.files = files(self._transport)
            self.runs = runs(self._transport)

    return Lying


class NoPath(ReferenceProvider):
    """Has a search path that leads to no Python."""

    def _env(self, record: Record) -> dict[str, str]:
        tools = self._place / "tools"
        if not tools.exists():
            tools.mkdir()
            (tools / "sh").symlink_to("/bin/sh")
        return {**super()._env(record), "PATH": str(tools)}


def _as_text(data: bytes) -> bytes:
    return data.decode(errors="replace").encode()


def _half_quoted(word: str) -> str:
    """As so many do it."""
    return word if word.startswith("-") else f'"{word}"' if "'" in word else f"'{word}'"


def _lies(what: str, guest: type[Guest], *fails: str) -> Defect:
    return Defect(what, ReferenceProvider, fails, Terms(TEMPLATE, connect=guest))


DEFECTS = (
    _lies("calls everything a success", ZeroExit, "a_command_ends_with_its_own_exit_code"),
    _lies("mixes its streams", MixedStreams, "output_and_errors_come_apart"),
    _lies("drops stdin", NoStdin, "a_command_reads_its_stdin_to_the_end"),
    _lies("knows only text", TextOnly, "every_byte_survives"),
    _lies("goes through a shell", ThroughAShell, "arguments_are_not_read_by_a_shell"),
    _lies("ignores cwd", NoCwd, "a_command_runs_where_it_is_told_to"),
    Defect("has a bad PATH", NoPath, ("programs_are_found_by_name",)),
    _lies("mixes up commands", OneDesk, "commands_side_by_side_do_not_mix"),
    _lies(
        "forgets output at the deadline",
        ForgetsOutputAtTheDeadline,
        "a_deadline_ends_a_command_with_124_and_its_output",
    ),
    _lies("leaves the tree", LeavesTheTree, "a_deadline_ends_the_whole_tree"),
    _lies("knows only text files", _with(TextFiles), "a_file_is_read_as_it_was_written"),
    _lies("cuts names", _with(PlainNames), "a_file_may_have_an_odd_name"),
    _lies("tells twice", _with(runs=TellsTwice), "a_run_goes_on_while_nobody_watches"),
    _lies(
        "starts a run each time",
        _with(runs=NewRunEachTime),
        "a_run_goes_on_while_nobody_watches",
        "a_run_is_started_once_by_its_key",
    ),
    _lies("removes nothing", _with(KeepsFiles), "a_removed_file_is_gone"),
)
