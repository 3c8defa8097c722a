"""Where a task works: its sandbox, the directory in it, and what is there before the agent."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import cast

from paddock.domain.errors import Conflict, NotFound, PaddockError, TimedOut, Unavailable
from paddock.domain.lifetime import Terms
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord
from paddock.domain.repetition import own_key
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord
from paddock.domain.task_loss import step_after
from paddock.domain.task_wish import Workspace
from paddock.domain.team import Principal
from paddock.domain.volume import MountWish
from paddock.guest_client import Guest
from paddock.ports.store import Page, SandboxFilter
from paddock.services.amendments import Amendment
from paddock.services.changes import Changes
from paddock.services.inside import Entered, Inside
from paddock.services.sandboxes import Sandboxes
from paddock.services.spending import TASK
from paddock.services.system import system
from paddock.services.task_accounts import TaskAccounts
from paddock.services.task_masks import Masks
from paddock.services.task_tree import Tree
from paddock.services.task_trees import Trees
from paddock.services.wishes import Wish

_log = logging.getLogger(__name__)
_DEFAULT = "workspace"
_PREPARE_S = 60.0
_ANSWERS_S = 10.0
_OF_A_TASK = 100
_PLACE = 'cd && printf "%s\\0" "$PWD" && mkdir -p -- "$1" && cd -- "$1" && pwd -P'
_MODE = 'chmod "$1" -- "$2"'
LOST = (SandboxState.FAILED, SandboxState.DELETING, SandboxState.DELETED)
ASLEEP = (SandboxState.STOPPED, SandboxState.PAUSED, SandboxState.ARCHIVED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a sandbox a task works."""

    home: str
    directory: str


class Workspaces:
    """They are made once per task, whoever asks and how often."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        inside: Inside,
        masks: Masks,
        trees: Trees,
        *,
        changes: Changes,
        accounts: TaskAccounts,
    ) -> None:
        self._sandboxes = sandboxes
        self._changes = changes
        self._inside = inside
        self.accounts = accounts
        self.masks = masks
        self.trees = trees

    async def make(self, task: TaskRecord, wanted: Workspace) -> SandboxRecord:
        """A running sandbox that is marked as this task's."""
        who = task.principal
        if wanted.sandbox:
            await self._check_open(task, wanted.sandbox)
            return await self._use(task, wanted.sandbox)
        wish = _wished(task, wanted)
        key = own_key(step_after(task.losses, f"task {task.id}"))
        if wanted.fork and task.went_back is None:
            return await self._sandboxes.fork(who, wanted.fork, wish, key)
        return await self._sandboxes.create(who, wish, key)

    async def discard(self, task: TaskRecord) -> None:
        """The sandbox that was made for it, or is just being made, goes: nobody has worked in it.
        What cannot go now is seen by its label, and ends when its time is up. What was lost stays
        for who wants to look."""
        if not task.wish.workspace.makes_one:
            return
        made = SandboxFilter(labels={TASK: task.id})
        lost = {each.sandbox_id for each in task.losses}
        with suppress(PaddockError):
            for each in await self._sandboxes.list(task.principal, made, Page(_OF_A_TASK)):
                if each.task == task.id and each.id not in lost:
                    why = f"task {task.id} was cancelled"
                    await self._sandboxes.delete(task.principal, each.id, force=True, why=why)

    async def _use(self, task: TaskRecord, name: str) -> SandboxRecord:
        """Awake, and with what models cost on this task's account."""
        who = task.principal
        sandbox = await self._sandboxes.get(who, name)
        if sandbox.state in ASLEEP:
            sandbox = await self._woken(who, sandbox)
        elif sandbox.state is not SandboxState.RUNNING:
            raise Conflict(
                f"sandbox {sandbox.name} is {sandbox.state}, and no task can work in it",
                remediation="name another, or a template to make one of",
            )
        return await self.charge(task, sandbox)

    async def charge(self, task: TaskRecord, sandbox: SandboxRecord) -> SandboxRecord:
        """This task pays for what the sandbox uses of models from now on."""
        amendment = Amendment(labels={**sandbox.labels, TASK: task.id}, task=task.id)
        sandbox = await self._sandboxes.amend(task.principal, sandbox.id, amendment)
        await self.accounts.switch(sandbox)
        return sandbox

    async def wake(self, task: TaskRecord) -> None:
        """Its sandbox runs again."""
        await self._check_open(task, task.sandbox_id)
        who = task.principal
        await self._woken(who, await self._sandboxes.get(who, task.sandbox_id))

    async def _woken(self, who: Principal, sandbox: SandboxRecord) -> SandboxRecord:
        if sandbox.state is SandboxState.PAUSED:
            return await self._sandboxes.resume(who, sandbox.id)
        return await self._sandboxes.start(who, sandbox.id)

    @asynccontextmanager
    async def enter(self, task: TaskRecord, what: str = "agent") -> AsyncIterator[Entered]:
        """While this is open, the sandbox does not idle."""
        await self._check_open(task, task.sandbox_id)
        async with self._inside.enter(task.principal, task.sandbox_id, what) as entered:
            yield entered

    async def _check_open(self, task: TaskRecord, name: str) -> None:
        """A task waits for a sandbox that was set aside, whoever gave it."""
        sandbox = await self._sandboxes.get(task.principal, name)
        if sandbox.quarantine is not None:
            raise Unavailable(
                f"sandbox {sandbox.name} was set aside: {sandbox.quarantine.why}",
                remediation=f"an admin opens it with `paddock quarantine clear {sandbox.name}`",
            )

    async def answers(self, task: TaskRecord) -> bool:
        """Whether its sandbox does anything that it is asked for."""
        try:
            async with asyncio.timeout(_ANSWERS_S), self.enter(task) as entered:
                await entered.guest.exec(("true",), timeout=_ANSWERS_S)
        except (Unavailable, TimedOut, TimeoutError):
            return False
        except PaddockError:
            pass  # it says something, at least
        return True

    async def start_anew(self, task: TaskRecord, why: str) -> bool:
        """Its sandbox is stopped, whatever runs in it, and started. Not one that somebody has
        stopped or paused meanwhile; whether it was."""
        nobody = system(task.team_id, "tasks")
        stopped = await self._sandboxes.stop(
            nobody, task.sandbox_id, Reason.CRASHED, why, only_if=_is_at_work
        )
        if (stopped.state, stopped.detail) != (SandboxState.STOPPED, why):
            return False
        await self.wake(task)
        return True

    async def is_lost(self, task: TaskRecord) -> bool:
        sandbox = await self.sandbox(task)
        return sandbox is not None and sandbox.state in LOST

    async def sandbox(self, task: TaskRecord) -> SandboxRecord | None:
        """As it is on record, whatever whom the task acts for may still see of it."""
        if not task.sandbox_id:
            return None
        return await self._changes.find(task.team_id, task.sandbox_id)

    async def prepare(self, task: TaskRecord) -> Place:
        """The directory is there, and nothing of the task runs in it."""
        async with self.enter(task) as entered:
            await _end_runs(entered.guest, task)
            back = task.went_back
            wanted = back.directory if back is not None else task.wish.workspace.directory
            work = entered.sandbox.work
            wanted = wanted or (work.directory if work is not None else _DEFAULT)
            ran = await entered.guest.exec(
                ("/bin/sh", "-c", _PLACE, "sh", wanted), timeout=_PREPARE_S
            )
        if ran.exit_code != 0:
            said = ran.stderr.decode(errors="replace").strip()[-300:]
            raise Conflict(
                f"the task cannot work in {wanted[:200]}: {said}",
                remediation="name a directory that the sandbox's user may make",
            )
        try:
            home, _, directory = ran.stdout.decode().partition("\0")
        except UnicodeDecodeError as error:
            raise Conflict(
                f"the task cannot work in {wanted[:200]}: its real path is no text in UTF-8",
                remediation="name another directory",
            ) from error
        return Place(home, directory.rstrip("\n"))

    @asynccontextmanager
    async def tree(self, task: TaskRecord) -> AsyncIterator[Tree]:
        async with self.enter(task) as entered:
            after = task.result.commit if task.result else ""
            yield Tree(entered.guest, task.directory, task.id, task.checkpoint, after)

    async def checkpoint(self, task: TaskRecord) -> str:
        """The commit of what is there; empty where no git is."""
        async with self.tree(task) as tree:
            try:
                commit = await tree.keep("before")
            except PaddockError as error:
                if error.passes or await self.is_lost(task):
                    raise
                told = {"task": task.id, "why": error.message}
                _log.warning("no checkpoint, so neither diff nor revert", extra=told)
                return ""
            with suppress(PaddockError):  # it is none of this task's business
                await self.trees.tidy(tree.guest)
            return commit


async def give_files(workspaces: Workspaces, task: TaskRecord) -> int:
    """Write the files that the task was given."""
    async with workspaces.enter(task) as entered:
        for file in task.wish.files:
            path = f"{task.directory}/{file.path}"
            await entered.guest.files.write(path, file.data)
            if file.mode != 0o644:
                command = ("/bin/sh", "-c", _MODE, "sh", f"{file.mode:o}", path)
                await entered.guest.exec(command, timeout=_PREPARE_S)
    return len(task.wish.files)


def _is_at_work(sandbox: SandboxRecord) -> bool:
    return sandbox.state is SandboxState.RUNNING and sandbox.quarantine is None


def _wished(task: TaskRecord, wanted: Workspace) -> Wish:
    """As it was asked for; the next one after a loss as the one before was, too."""
    wish = Wish(
        template=wanted.template,
        snapshot=wanted.snapshot,
        provider=wanted.provider,
        app=wanted.app,
        resources=wanted.resources,
        egress=wanted.egress,
        labels={TASK: task.id},
        task=task.id,
    )
    if not task.losses:
        return wish
    lost = task.losses[-1]
    wish = replace(
        wish,
        labels={**lost.labels, **wish.labels},
        egress=lost.egress,
        command_policy=lost.command_policy,
        hardened=lost.hardened,
        runtime=lost.runtime,
        lifetime=cast(Terms, asdict(lost.lifetime)),
    )
    if not lost.snapshot_id:
        return wish
    mounts = tuple(MountWish(each.volume, each.path, each.read_only) for each in lost.volumes)
    return replace(
        wish,
        template="",
        provider="",
        snapshot=lost.snapshot_id,
        app=wanted.app or lost.app,
        volumes=mounts,
    )


async def _end_runs(guest: Guest, task: TaskRecord) -> None:
    """A snapshot may have been taken with what ran then, its agent too, which goes on in what was
    made of it."""
    if task.went_back is None:
        return
    for run in await guest.runs.list():
        if run.exit is None and run.key.startswith(f"{task.id}."):
            with suppress(Conflict, NotFound):  # it has ended meanwhile
                await guest.runs.signal(run.key, "SIGKILL")
