"""What all services of one guest share."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Callable

from . import disk, environment
from .accounting import Accounting
from .children import Children
from .config import GuestConfig
from .environment import encode
from .errors import GuestError, invalid
from .removal import remove_now
from .spawn import Command, Spawner
from .tasks import Tasks, warn
from .users import ROOT, Account, Accounts

if TYPE_CHECKING:
    from .desk import Desk
    from .process import Process
    from .run_service import Runs
    from .supervisor import Supervisor


class GuestState:
    """The guest as it is now: who it is, what it was told, what it holds open."""

    def __init__(self, config: GuestConfig, tasks: Tasks) -> None:
        self.config = config
        self.sandbox_id = config.sandbox_id
        self.token = config.token
        self.env = dict(config.env)
        self.default_user = config.user
        self.workdir = config.workdir
        self.accounts = Accounts()
        self.accounting = Accounting(config.accounting)
        self.spawner = Spawner(config.accounting.get("oom_score_adj"))
        self.children = Children()
        self.tasks = tasks
        self.streams = 0
        self.live: set[Process] = set()
        """Every program that was started here and has not ended."""
        self.desks: dict[str, Desk] = {}
        """Of runs whose programs may ask the control plane something."""
        self._runs: Runs | None = None
        self._supervisor: Supervisor | None = None
        self.last_activity = time.time()
        self.let_go: Callable[[], None] | None = None
        """Have the guest leave its socket; None where it could not come back."""

    @property
    def runs(self) -> Runs:
        """Loaded when first needed, with what a guest before this one left."""
        if self._runs is None:
            from .run_service import Runs

            self._runs = Runs(self)
        return self._runs

    @property
    def supervisor(self) -> Supervisor:
        if self._supervisor is None:
            from .supervisor import Supervisor

            self._supervisor = Supervisor(self)
        return self._supervisor

    def boot(self) -> None:
        """Take up what is on the disk: runs that were lost, processes that shall run."""
        base = self.config.state_dir
        try:
            os.makedirs(base, 0o711, exist_ok=True)
            self._take_identity()
        except OSError as error:
            warn(f"{base} cannot be used, so runs and processes cannot be kept: {error}")
            return
        if disk.names(f"{base}/runs"):
            self.runs  # noqa: B018
        if disk.names(f"{base}/processes"):
            self.supervisor  # noqa: B018

    def rename(self, sandbox_id: str) -> None:
        """It is another sandbox from now on, and the runs were the old one's."""
        if sandbox_id != self.sandbox_id:
            self.sandbox_id = sandbox_id
            try:
                self._take_identity()
            except OSError as error:
                warn(f"the sandbox's id could not be written down: {error}")
            if self._runs is not None:
                self._runs.forget_all()
            for desk in self.desks.values():
                desk.close()
            self.desks.clear()

    def adopt(self, token: str, sandbox_id: str) -> None:
        """It may be another sandbox from now on, in which everything goes on nevertheless."""
        self.token, self.sandbox_id = token, sandbox_id
        try:
            disk.write_json(self._identity_path, sandbox_id)
        except OSError as error:
            warn(f"the sandbox's id could not be written down: {error}")

    @property
    def _identity_path(self) -> str:
        return f"{self.config.state_dir}/sandbox-id.json"

    def _take_identity(self) -> None:
        """A disk that comes from another sandbox brings its runs and inboxes: away with them."""
        path = self._identity_path
        if disk.read_json(path) == self.sandbox_id:
            return
        for name in ("runs", "inboxes"):
            remove_now(f"{self.config.state_dir}/{name}")
        disk.write_json(path, self.sandbox_id)

    @property
    def running_runs(self) -> int:
        return 0 if self._runs is None else len(self._runs.running)

    async def shutdown(self, grace: float, reason: str) -> None:
        """End everything that runs: SIGTERM, `grace` seconds, then the trees."""
        if self._supervisor is not None:
            await self._supervisor.stop_all(grace)
        ending = tuple(self.live)
        for process in ending:
            process.end(reason, grace)
        await asyncio.gather(*(asyncio.shield(process.done) for process in ending))

    @property
    def default_account(self) -> Account:
        """The default user; where there is none, or it cannot be become, whoever the guest is."""
        wanted = self.accounts.find(self.default_user)
        own = os.geteuid()
        if wanted is not None and own in (0, wanted.uid):
            return wanted
        return self.accounts.find(str(own)) or ROOT

    def account(self, name: str) -> Account:
        """By name; empty means the default user."""
        if not name:
            return self.default_account
        account = self.accounts.find(name)
        if account is None:
            raise GuestError("unauthenticated", f"invalid username: '{name}'")
        return account

    def command(
        self,
        argv: list[str],
        *,
        account: Account,
        env: Mapping[str, str],
        cwd: str = "",
        stdin: bool = False,
        terminal: tuple[int, int] | None = None,
    ) -> Command:
        """A command as it was asked for, completed with what the sandbox adds."""
        if not argv:
            raise invalid("a command needs at least a name")
        basic = {**environment.basic(account, self.sandbox_id), **self.env}
        basic["PATH"] = environment.with_agents(basic["PATH"])
        return Command(
            argv=[encode(argument) for argument in argv],
            env=environment.pack(basic, env),
            cwd=self.absolute(cwd, account) if cwd else self._start_directory(account),
            account=account,
            stdin=stdin,
            terminal=terminal,
        )

    def absolute(self, path: str, account: Account) -> bytes:
        """A path of the protocol: relative to the user's home, with `~` for that home."""
        if "\0" in path:
            raise invalid("a path may not hold a NUL byte")
        if path == "~" or path.startswith("~/"):
            path = account.home + path[1:]
        elif path.startswith("~"):
            raise invalid(f"{path}: only the user's own home can be written as ~")
        elif not path.startswith("/"):
            path = f"{account.home}/{path}"
        return encode(path)

    def _start_directory(self, account: Account) -> bytes:
        if self.workdir:
            return self.absolute(self.workdir, account)
        return encode(account.home)
