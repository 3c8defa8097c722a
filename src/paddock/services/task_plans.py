"""Validates task requests and builds their records."""

from dataclasses import dataclass, replace

from paddock.domain import names
from paddock.domain.conversation import Conversation
from paddock.domain.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    TimedOut,
    Unavailable,
    Unsupported,
)
from paddock.domain.guardian import GuardianPolicy
from paddock.domain.ids import new_id
from paddock.domain.image_reference import check_tenants
from paddock.domain.quarantine import check_evidence
from paddock.domain.records import SandboxRecord, alive, check_name, taken
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.task import TASK_PREFIX, TaskRecord
from paddock.domain.task_wish import TaskWish, Workspace, checked
from paddock.domain.team import Principal, Scope
from paddock.guest_client.files import FileKind
from paddock.ports.clock import Clock
from paddock.ports.provider import SandboxSpec
from paddock.ports.store import Store, Transaction
from paddock.services.build_records import ready_build
from paddock.services.changes import Changes
from paddock.services.inside import Entered, Inside
from paddock.services.providers import Providers
from paddock.services.sandbox_plan import DEFAULT_TEMPLATE
from paddock.services.task_pause import found
from paddock.services.task_setting import AgentSettings

_LOOK_S = 10.0


@dataclass(frozen=True, slots=True)
class Submission:
    """A wish, and how it belongs together with others."""

    wish: TaskWish
    name: str = ""
    batch: str = ""
    attempt_of: str = ""


class TaskPlans:
    """The same for every task."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        changes: Changes,
        providers: Providers,
        settings: AgentSettings,
        inside: Inside,
        guardian: GuardianPolicy,
    ) -> None:
        self._store = store
        self._clock = clock
        self._changes = changes
        self._providers = providers
        self._settings = settings
        self._inside = inside
        self._guardian = guardian

    async def plan(self, principal: Principal, submitted: Submission) -> TaskRecord:
        """The task as it would be kept. Raise for what cannot be done."""
        wish, conversation = checked(submitted.wish), Conversation()
        check_tenants(wish.workspace.template)
        self._guardian.of_task(wish.guardian, wish.scope)
        if wish.follows:
            wish, conversation = await self._following(principal, wish)
        sandbox = await self._named_sandbox(principal, wish)
        if not wish.agent:
            wish = replace(wish, agent=await self._settings.only(principal, wish, sandbox))
        await self._settings.check(principal, wish, sandbox)
        provider = sandbox.provider if sandbox else wish.workspace.provider
        provider = provider or self._providers.in_use
        await self._check_place(principal, submitted.wish.workspace, provider, sandbox)
        used = sandbox.id if sandbox and wish.workspace.sandbox else ""
        if sandbox is not None:  # its name may change
            fork = "" if used else sandbox.id
            wish = replace(wish, workspace=replace(wish.workspace, sandbox=used, fork=fork))
        now = self._clock.wall()
        return TaskRecord(
            id=new_id(TASK_PREFIX),
            team_id=principal.team_id,
            name=check_name(submitted.name) if submitted.name else names.invent(),
            wish=wish,
            created_at=now,
            changed_at=now,
            sandbox_id=used,
            provider=provider,
            batch=submitted.batch,
            attempt_of=submitted.attempt_of,
            conversation=conversation,
            actor=principal.actor,
            role=principal.role,
            scopes=tuple(sorted(principal.scopes)),
        )

    async def _check_place(
        self,
        principal: Principal,
        wanted: Workspace,
        provider: str,
        sandbox: SandboxRecord | None,
    ) -> None:
        """Check that snapshot, template and directory exist and that the host has the resources."""
        if wanted.fork and not self._providers.get(provider).capabilities.fork:
            raise Unsupported(
                f"provider {provider} cannot fork sandboxes",
                remediation="use `sandbox` instead of `fork`, or give a template",
            )
        if wanted.snapshot:
            await self._store.read(lambda tx: _check_snapshot(tx, principal, wanted.snapshot))
        if sandbox is None or wanted.resources:
            has = sandbox.resources if sandbox else Resources()
            template = ""
            if sandbox is None and not wanted.snapshot:
                template = await self._provider_template(principal, wanted.template)
            resources = has.changed(wanted.resources)
            self._providers.check(provider, SandboxSpec(template=template, resources=resources))
        if sandbox is not None and wanted.directory:
            await self._check_directory(principal, sandbox, wanted.directory)

    async def _provider_template(self, principal: Principal, template: str) -> str:
        """The template that the provider has to know; empty for one that the team has built."""
        if template and Scope.TEMPLATES_READ in principal.scopes:
            named = (principal.team_id, template)
            if await self._store.read(lambda tx: ready_build(tx, *named)) is not None:
                return ""
        return template or DEFAULT_TEMPLATE

    async def _check_directory(
        self, principal: Principal, sandbox: SandboxRecord, directory: str
    ) -> None:
        """A sandbox that is asleep is not woken for it; where its disk cannot be read, the task
        finds out."""
        try:
            async with self._inside.look(principal, sandbox.id, "") as entered:
                is_there = await _is_directory(entered, directory)
        except NotFound:
            is_there = False
        except (Conflict, Forbidden, TimedOut, Unavailable, Unsupported):
            return
        if not is_there:
            raise NotFound(
                f"there is no directory {directory[:200]} in sandbox {sandbox.name}",
                remediation=f"make it with `paddock exec {sandbox.name} -- mkdir -p …`, or name "
                "one that is there",
            )

    async def _following(
        self, principal: Principal, wish: TaskWish
    ) -> tuple[TaskWish, Conversation]:
        """Continue a task with its agent and session, in its workspace unless one is given."""
        before = await self._store.read(lambda tx: found(tx, principal.team_id, wish.follows))
        agent = self._settings.agent(before.agent)
        if wish.agent not in ("", before.agent) or not agent.traits.resumes:
            raise InvalidRequest(
                f"a session of {before.agent} cannot be continued by {wish.agent}",
                remediation="leave `agent` out, or begin a task of its own",
            )
        if not before.conversation.own_session:
            raise Conflict(
                f"task {before.id} has no session to continue: it is {before.state}",
                remediation="wait until its agent has begun, or begin a task of its own",
            )
        place = wish.workspace
        if not (place.sandbox or place.fork or place.snapshot):
            if place.template or place.app or place.egress or place.resources:
                raise InvalidRequest(
                    f"a task that follows {before.id} works where that one worked, as it is",
                    remediation="leave out template, app, egress and resources, or name a sandbox "
                    "to fork or a snapshot that holds the session",
                )
            place = replace(place, sandbox=before.sandbox_id)
        place = replace(place, directory=place.directory or before.directory)
        model = wish.model or before.wish.model
        wish = replace(wish, agent=before.agent, model=model, workspace=place)
        session = before.conversation.own_session
        return wish, Conversation(session=session, origin=session)

    async def _named_sandbox(self, principal: Principal, wish: TaskWish) -> SandboxRecord | None:
        name = wish.workspace.sandbox or wish.workspace.fork
        if not name:
            return None
        return alive(await self._changes.find(principal.team_id, name))


def _check_snapshot(tx: Transaction, principal: Principal, name: str) -> None:
    snapshot = taken(tx.snapshots.get(principal.team_id, name), name)
    check_evidence(snapshot.quarantine, snapshot.name, principal)


async def _is_directory(entered: Entered, path: str) -> bool:
    """For the sandbox's user, as the task will find it. NotFound when nothing is there."""
    if entered.sandbox.state is not SandboxState.RUNNING:
        return (await entered.guest.files.stat(path)).kind is not FileKind.FILE
    command = ("/bin/sh", "-c", 'cd && test -d "$1"', "sh", path)
    return (await entered.guest.exec(command, timeout=_LOOK_S)).exit_code == 0
