"""What was made in a sandbox: asked of the git inside, told of a group, and not deleted unseen."""

import asyncio
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.domain.errors import Broken, Conflict, NotFound, PaddockError
from paddock.domain.guest import CommandResult
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.team import Principal, Scope
from paddock.domain.work import Change, ChangeKind, Made, Overlap, Work, overlaps
from paddock.ports.store import Page, SandboxFilter, Store
from paddock.services.guests import Guests
from paddock.services.inside import Inside

_LOOK_S = 120.0
_MOST_OUTPUT = 8 << 20
_AT_ONCE = 4
_LARGEST_GROUP = 500
_NAMED = 5
_SAID = 500
# An index and objects of its own, so that a look leaves nothing behind. What is committed since the
# base, what is not, and what git does not know yet all end up in one tree.
_LOOK = """
cd -- "$1" 2>/dev/null || exit 91
command -v git >/dev/null || exit 92
top=$(git rev-parse --show-toplevel 2>/dev/null) && cd "$top" || exit 93
base=${2:-$(git merge-base HEAD origin/HEAD 2>/dev/null)}
[ -n "$base" ] || exit 94
scratch=$(mktemp -d) || exit 95
trap 'rm -rf "$scratch"' EXIT
GIT_ALTERNATE_OBJECT_DIRECTORIES=$(realpath "$(git rev-parse --git-path objects)")
cp "$(git rev-parse --git-path index)" "$scratch/index" 2>/dev/null
mkdir "$scratch/objects"
export GIT_ALTERNATE_OBJECT_DIRECTORIES
export GIT_OBJECT_DIRECTORY="$scratch/objects" GIT_INDEX_FILE="$scratch/index"
git -c core.fsmonitor=false add -A >/dev/null || exit 96
tree=$(git write-tree) || exit 96
printf '%s\\0%s\\0' "$base" "$tree"
[ "$tree" != "$base" ] || exit 0
git diff-tree -r -z --no-renames --raw --no-abbrev "$base" "$tree" || exit 97
"""
_WHY = {
    91: "there is no directory {directory} in it",
    92: "git is not installed in it",
    93: "{directory} is no git work tree",
    94: "it is not known what {directory} began with: it has no base, and no branch of an origin",
    97: "what it began with is not in {directory} any more",
}
_RAW = re.compile(r":(\d{6}) (\d{6}) ([0-9a-f]{40,64}) ([0-9a-f]{40,64}) ([AMDT])")
_KINDS = {"A": ChangeKind.ADDED, "D": ChangeKind.REMOVED}


@dataclass(frozen=True, slots=True)
class Member:
    """A sandbox of a group, and what was made in it; or why that cannot be told."""

    sandbox: SandboxRecord
    made: Made | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """The sandboxes of one piece of work, and the files that several of them have edited."""

    members: tuple[Member, ...]
    overlaps: tuple[Overlap, ...]


class WorkInside:
    """Looks that change nothing."""

    def __init__(self, store: Store, inside: Inside, guests: Guests) -> None:
        self._store = store
        self._inside = inside
        self._guests = guests

    async def made(self, principal: Principal, name: str) -> Made:
        """What differs from what the work began with. Conflict, with the reason, where that cannot
        be told."""
        async with self._inside.enter(principal, name, "", Scope.SANDBOXES_READ) as entered:
            return await self._look(entered.sandbox)

    async def group(self, principal: Principal, identity: str) -> Group:
        """Of all that share the identity; NotFound when nobody has it."""
        principal.require(Scope.SANDBOXES_READ)
        wanted = SandboxFilter(identity=identity)
        page = Page(_LARGEST_GROUP)
        listed = await self._store.read(
            lambda tx: tx.sandboxes.list(principal.team_id, wanted, page)
        )
        found = [sandbox for sandbox in listed if not sandbox.is_gone]
        if not found:
            raise NotFound(
                f"no sandbox has the identity {identity[:80]!r}",
                remediation="`paddock group ls` shows those there are",
            )
        limit = asyncio.Semaphore(_AT_ONCE)
        members = await asyncio.gather(*(self._member(principal, each, limit) for each in found))
        changes = {each.sandbox.id: each.made.changes for each in members if each.made}
        return Group(tuple(members), tuple(overlaps(changes)))

    async def hold(self, sandbox: SandboxRecord) -> str:
        """What would be lost with the sandbox, in words (L6): only of one whose base is known."""
        work = sandbox.work
        if work is None or not work.base or sandbox.state is SandboxState.FAILED:
            return ""
        if sandbox.state is not SandboxState.RUNNING:
            return f"what was made in {work.directory} cannot be seen while it is {sandbox.state}"
        try:
            made = await self._look(sandbox)
        except Conflict as error:
            return error.message
        return told(made.changes) if made.tree != work.base else ""

    async def _member(
        self, principal: Principal, sandbox: SandboxRecord, limit: asyncio.Semaphore
    ) -> Member:
        if sandbox.state is not SandboxState.RUNNING:
            return Member(sandbox, None, f"it is {sandbox.state}")
        async with limit:
            try:
                return Member(sandbox, await self.made(principal, sandbox.id))
            except PaddockError as error:
                return Member(sandbox, None, error.message)

    async def _look(self, sandbox: SandboxRecord) -> Made:
        work = sandbox.work or Work()
        guest = await self._guests.of(sandbox)
        ran = await guest.exec(
            ("/bin/sh", "-c", _LOOK, "sh", work.directory, work.base),
            env={"LC_ALL": "C"},
            timeout=_LOOK_S,
            max_output=_MOST_OUTPUT,
        )
        if ran.exit_code != 0:
            raise Conflict(
                f"what was made in sandbox {sandbox.name} cannot be told: {_why(ran, work)}",
                remediation="look with `paddock exec`, or say with `work` where it is",
            )
        return _read(ran, work)


def told(changes: Sequence[Change]) -> str:
    """For people: how many, and the first of them."""
    if not changes:
        return "changes that cannot be listed"
    paths = (change.path.encode("utf-8", "backslashreplace").decode() for change in changes)
    names = ", ".join(itertools.islice(paths, _NAMED))
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    files = "file" if len(changes) == 1 else "files"
    return f"{len(changes)} changed {files}: {names}{more}"


def _why(ran: CommandResult, work: Work) -> str:
    if ran.exit_code in _WHY:
        return _WHY[ran.exit_code].format(directory=work.directory[:200])
    said = ran.stderr.decode(errors="replace").strip()[-_SAID:]
    return f"git ended with {ran.exit_code}: {said}"


def _read(ran: CommandResult, work: Work) -> Made:
    """What the sandbox says is not to be believed further than its form."""
    base, tree, *fields = ran.stdout.decode("utf-8", "surrogateescape").split("\0")
    pairs = list(zip(fields[0::2], fields[1::2], strict=False))
    changes = []
    for raw, path in pairs[:-1] if ran.truncated else pairs:
        if not (match := _RAW.fullmatch(raw)):
            raise Broken(f"git inside said {raw[:80]!r}, which is no change of a file")
        _, mode, _, blob, letter = match.groups()
        kind = _KINDS.get(letter, ChangeKind.CHANGED)
        removed = kind is ChangeKind.REMOVED
        changes.append(Change(path, kind, "" if removed else mode, "" if removed else blob))
    return Made(Work(work.directory, base), tree, tuple(changes), ran.truncated)
