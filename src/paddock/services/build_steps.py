"""The steps of a build, done one after the other in a sandbox."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from paddock.domain.build import AT_END, Attempt, Left, Step, StepFailed, StepKind
from paddock.domain.errors import PaddockError, Unauthenticated
from paddock.guest_client import Guest
from paddock.guest_client.commands import Ended, Output

_ARCHIVE = "/tmp/.paddock-build.tar"  # noqa: S108 - in the sandbox
_STEP_S = 3600.0
_READY_S = 60.0
_ASK_S = 0.2
_SETTLE_S = 1.0
"""For what nobody said how to tell that it is ready: time enough to fail at once."""
# Docker's rules: of a directory its content is copied, and a destination that ends with a slash is
# one. What is copied belongs to whom the step names, or who builds. What a pattern with ** found is
# all that was handed in, and keeps its place below the directory that the pattern begins with.
_COPY = """
set -eu
from=$1 to=$2 owner=$3 mode=$4
place=$(mktemp -d)
trap 'rm -rf "$place" {archive}' EXIT
tar -xf {archive} -C "$place"
cd "$place"
case $to in */) into=1 ;; *) into= ;; esac
case $from in *'**'*)
    from=${from%%\\**}
    case $from in */*) from=${from%/*} ;; *) from=. ;; esac ;;
esac
if [ -e "$from" ] || [ -L "$from" ]; then
    set -- "$from"
else
    IFS=
    set -- $from
    unset IFS
fi
if [ $# -gt 1 ]; then into=1; fi
for each in "$@"; do
    if ! [ -e "$each" ] && ! [ -L "$each" ]; then
        echo "$each is not among the files that were handed in" >&2
        exit 1
    fi
    [ -z "$mode" ] || chmod -R -- "$mode" "$each"
    chown -Rh -- "$owner" "$each"
    if [ -d "$each" ] && ! [ -L "$each" ]; then
        mkdir -p "$to" && cp -a -- "$each/." "$to/"
        chown "$owner" "$to"
    elif [ -n "$into" ] || [ -d "$to" ]; then
        mkdir -p "$to" && cp -a -- "$each" "$to/"
    else
        mkdir -p "$(dirname "$to")" && cp -a -- "$each" "$to"
    fi
done
""".replace("{archive}", _ARCHIVE)

Say = Callable[[str], None]
Check = Callable[[Sequence[str], Mapping[str, str]], Awaitable[None]]
"""Raises unless the command may be run."""
Files = Callable[[str], AsyncIterator[bytes]]


class Bench:
    """A sandbox in which something is built, and what was said of it until now."""

    def __init__(self, guest: Guest, files: Files, say: Say, check: Check) -> None:
        self._guest = guest
        self._files = files
        self._say = say
        self._check = check
        self.left = Left(user="user")

    async def do(self, number: int, step: Step) -> None:
        """StepFailed, with the number, when it cannot be done."""
        self._say(f"[{number}] {step.kind} {' '.join(step.args)}"[:2000])
        try:
            await self._do(step)
        except StepFailed as failure:
            raise failure.at(str(number)) from failure
        except PaddockError as error:
            raise StepFailed(str(number), str(error)) from error

    async def try_out(self, start: str, ready: str) -> None:
        """What is started in every sandbox of the template, until it is ready. StepFailed when it
        is not; it ends with the sandbox of the build."""
        starting = asyncio.ensure_future(self._started(start))
        try:
            async with asyncio.timeout(_READY_S):
                await self._until_ready(starting, ready)
        except TimeoutError:
            why = f"what starts with it was not ready within {_READY_S:g} s"
            raise StepFailed(AT_END, why) from None
        except StepFailed as failure:
            raise failure.at(AT_END) from failure
        except PaddockError as error:
            raise StepFailed(AT_END, str(error)) from error
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    async def _started(self, start: str) -> None:
        if start:
            self._say(f"starts {start}"[:2000])
            await self._run(start, self.left.user)

    async def _until_ready(self, starting: asyncio.Future[None], ready: str) -> None:
        argv = ("/bin/bash", "-lc", ready or f"sleep {_SETTLE_S:g}")
        await self._check(argv, self.left.env)
        while await self._call(argv, self.left.user, self.left.workdir, fails=False):
            if starting.done():
                starting.result()  # one that failed will never be ready
            await asyncio.sleep(_ASK_S)
        if starting.done():
            starting.result()

    async def _do(self, step: Step) -> None:
        left = self.left
        if step.kind is StepKind.RUN:
            await self._run(step.arg(0), step.arg(1) or left.user)
        elif step.kind is StepKind.COPY:
            await self._copy(step)
        elif step.kind is StepKind.ENV:
            pairs = dict(zip(step.args[::2], step.args[1::2], strict=False))
            self.left = replace(left, env={**left.env, **pairs})
        elif step.kind is StepKind.USER:
            self.left = replace(left, user=step.arg(0))
        else:
            path = self._resolved(step.arg(0))
            owner = shlex.quote(left.user)
            script = f'mkdir -p "$1" && chown {owner} "$1"'
            await self._call(("/bin/sh", "-c", script, "workdir", path), "root", "/")
            self.left = replace(left, workdir=path)

    async def _run(self, command: str, user: str) -> None:
        argv = ("/bin/bash", "-lc", command)
        await self._check(argv, self.left.env)
        try:
            code = await self._call(argv, user, self.left.workdir, fails=False)
        except Unauthenticated as error:
            attempt = Attempt(command, user)
            raise StepFailed("", str(attempt), attempt) from error
        if code:
            attempt = Attempt(command, user, code)
            raise StepFailed("", str(attempt), attempt)

    async def _copy(self, step: Step) -> None:
        source, to = step.arg(0), self._resolved(step.arg(1))
        await self._guest.files.write_stream(_ARCHIVE, self._files(step.files), user="root")
        owner, mode = step.arg(2) or self.left.user, step.arg(3)
        argv = ("/bin/sh", "-c", _COPY, "copy", source, to, owner, mode)
        await self._call(argv, "root", "/")

    async def _call(self, argv: Sequence[str], user: str, cwd: str, *, fails: bool = True) -> int:
        """Its exit code; what it says is told line by line."""
        rest = b""
        code = -1
        events = self._guest.start(
            argv, user=user, cwd=cwd or None, env=self.left.env, timeout=_STEP_S
        )
        async for event in events:
            if isinstance(event, Output):
                *lines, rest = (rest + event.data).split(b"\n")
                for line in lines:
                    self._say(line.decode(errors="replace")[:4000])
            elif isinstance(event, Ended):
                code = event.exit_code
        if rest:
            self._say(rest.decode(errors="replace")[:4000])
        if code and fails:
            raise StepFailed("", f"exit status {code}")
        return code

    def _resolved(self, path: str) -> str:
        if path.startswith("/"):
            return path
        home = "/root" if self.left.user == "root" else f"/home/{self.left.user}"
        return f"{self.left.workdir or home}/{path.removeprefix('./')}"
