"""What an agent changes in its workspace, kept as commits that no branch knows of.

They are in a repository of their own, in the user's home, and are found by the ids in the task's
record: see `task_tree_scripts`. Neither the index nor a branch nor the stash of the user is touched
by that; only a revert puts branch and index back as they were. What git ignored
then it leaves alone.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.domain.errors import Broken, Conflict
from paddock.domain.guest import CommandResult
from paddock.domain.task import FileChange
from paddock.services.task_tree_scripts import APPLY, DIFF, DRIFT, KEEP, NOW, REVERT, STAT
from paddock.services.transfers import TransferGuest

_log = logging.getLogger(__name__)
_LOOK_S = 300.0
_MOST_OUTPUT = 8 << 20
LARGEST_DIFF = 1 << 20
_SAID = 500
UNREAD = "not all that is in the workspace can be read"
_WHY = {
    91: "there is no directory {directory} in the sandbox, or not the one any more that it was",
    92: "git is not installed in the sandbox",
    95: "no file can be written in the sandbox",
    93: "there are more than 200 repositories in the workspace",
    94: "a git command holds a lock in the repository, or has left it behind",
    97: "what the workspace was before is not kept in the sandbox any more: somebody removed it",
    98: "it does not fit what is in the workspace by now",
}
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_KINDS = {"A": "added", "D": "removed"}


@dataclass(frozen=True, slots=True)
class Tree:
    """A workspace, as its task sees it."""

    guest: TransferGuest
    directory: str
    task_id: str
    before: str = ""
    """The commits that the task's record names: what the sandbox calls so may be anything."""
    after: str = ""

    async def keep(self, when: str) -> str:
        """The commit of what is there now: `before` the agent begins, `after` it has ended, or any
        other mark; all but `after` are made once."""
        return (await self.keep_after(when))[0]

    async def keep_after(self, when: str = "after") -> tuple[str, str]:
        """With what could not be kept, in words, because nobody may read it; not what was so
        before."""
        ran = await self._run(KEEP, when, self.before)
        commit, _, said = ran.stdout.decode("utf-8", "replace").strip().partition("\n")
        if not _COMMIT.fullmatch(commit):
            raise Broken(f"git inside said {commit[:80]!r}, which is no commit")
        return commit, unread(said.splitlines())

    async def now(self) -> str:
        """What git calls all that is there now, the same for the same files; empty when there is
        something that cannot be read."""
        return (await self._run(NOW, self.before)).stdout.decode("ascii", "replace").strip()

    async def changes(self) -> tuple[FileChange, ...]:
        counts, kinds = await self._whole("--numstat"), await self._whole("--name-status")
        lines: dict[str, tuple[int, int]] = {}
        for entry in _texts(counts):
            added, removed, path = entry.split("\t", 2)
            lines[path] = (_count(added), _count(removed))
        fields = _texts(kinds)
        pairs = zip(fields[0::2], fields[1::2], strict=False)
        return tuple(
            FileChange(path, _KINDS.get(letter[:1], "changed"), *lines.get(path, (0, 0)))
            for letter, path in pairs
        )

    async def _whole(self, form: str) -> bytes:
        ran = await self._run(STAT, form, self.before, self.after)
        if ran.truncated:
            raise Conflict(
                f"more files are changed than can be listed in {_MOST_OUTPUT} bytes",
                remediation="have git ignore what is not the agent's work, such as packages",
            )
        return ran.stdout

    async def diff(self, most: int = LARGEST_DIFF) -> tuple[bytes, bool]:
        """As `git apply` takes it, and whether that is not all of it."""
        ran = await self._run(DIFF, self.before, self.after, most=most)
        return ran.stdout, ran.truncated

    async def drift(self, mark: str) -> tuple[list[str], str]:
        """Files that are not as they were when the mark was made, of which `HEAD` may be one; and,
        in words, what nobody can say that of."""
        said = (await self._run(DRIFT, mark, self.before)).stdout.split(b"\0")
        end = said.index(b"") if b"" in said else len(said)
        left = _texts(b"\0".join(said[end:]))
        return _texts(b"\0".join(said[:end])), unread(left)

    async def revert(self, mark: str = "before") -> str:
        """As it was when the mark was made; the commit of what there was until now. Of a repository
        that is not there any more, the files are put back, and nothing else. Of an index whose
        objects are gone, or that was in the midst of a merge, comes what was committed."""
        said = (await self._run(REVERT, mark, self.before)).stdout.decode("utf-8", "replace")
        commit, _, gone = said.partition("\n")
        if gone:
            _log.warning("a repository was not put back", extra={"task": self.task_id})
        return commit

    async def apply(self, patch: bytes) -> None:
        await self._run(APPLY, stdin=patch)

    async def _run(
        self, script: str, *args: str, stdin: bytes = b"", most: int = _MOST_OUTPUT
    ) -> CommandResult:
        ran = await self.guest.exec(
            ("/bin/sh", "-c", script, "sh", self.directory, self.task_id, *args),
            env={"LC_ALL": "C"},
            stdin=stdin,
            timeout=_LOOK_S,
            max_output=most,
        )
        if ran.exit_code != 0:
            said = ran.stderr.decode(errors="replace").strip()[-_SAID:]
            why = _WHY.get(ran.exit_code, "git ended with {code}").format(
                directory=self.directory[:200], code=ran.exit_code
            )
            raise Conflict(
                f"{why}{': ' + said if said else ''}",
                remediation="look with `paddock exec`: what the agent made is still there",
            )
        return ran


def unread(lines: Sequence[str]) -> str:
    """What was left out, as it is told; empty when nothing was."""
    return f"{UNREAD}: {'; '.join(lines)}"[:_SAID] if lines else ""


def _texts(data: bytes) -> list[str]:
    return [each for each in data.decode("utf-8", "backslashreplace").split("\0") if each]


def _count(text: str) -> int:
    return int(text) if text.isdigit() else 0
