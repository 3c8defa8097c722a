"""Tasks and those who carry them out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paddock import __version__
from paddock.adapters.model_reviewer import ModelReviewer
from paddock.adapters.providers.dialing import dial
from paddock.domain.guardian import GuardianPolicy, Rule
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TaskRecord
from paddock.ports.clock import SystemClock
from paddock.ports.reviewer import ReviewerConfig
from paddock.ports.store import Store
from paddock.services.agent_questions import AgentQuestions
from paddock.services.agents import Agents
from paddock.services.approvals import Approvals
from paddock.services.audit_guard import AuditGuard
from paddock.services.bindings import Bindings
from paddock.services.broker import Broker
from paddock.services.care import Care
from paddock.services.changes import Changes
from paddock.services.egress_log import EgressLog
from paddock.services.events import EventFeed
from paddock.services.guardian import Readers
from paddock.services.guests import Guests
from paddock.services.inside import Inside
from paddock.services.making import Making
from paddock.services.once import Once
from paddock.services.prompt_secrets import PromptSecrets
from paddock.services.providers import Providers
from paddock.services.sandboxes import Sandboxes
from paddock.services.secrets import Secrets
from paddock.services.snapshots import Snapshots
from paddock.services.system import system
from paddock.services.task_accounts import TaskAccounts
from paddock.services.task_attempts import Attempts
from paddock.services.task_config import TasksConfig
from paddock.services.task_desk import TaskDesks
from paddock.services.task_health import AppHealths
from paddock.services.task_masks import Masks
from paddock.services.task_plans import TaskPlans
from paddock.services.task_queue import TaskQueue
from paddock.services.task_run import TaskRun
from paddock.services.task_setting import AgentSettings
from paddock.services.task_trees import Trees
from paddock.services.task_waking import TaskWaking
from paddock.services.task_watch import Watching
from paddock.services.task_workers import TaskWorkers
from paddock.services.task_workspace import Workspaces
from paddock.services.tasks import Tasks
from paddock.services.wakes import Wakes
from paddock.wiring.care import care_of
from paddock.wiring.guardian import rules_of


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What is there of them."""

    tasks: Tasks
    attempts: Attempts
    workers: TaskWorkers
    waking: TaskWaking
    care: Care


class Parts(Protocol):
    """What they are made of."""

    store: Store
    clock: SystemClock
    once: Once
    providers: Providers
    changes: Changes
    sandboxes: Sandboxes
    snapshots: Snapshots
    guests: Guests
    inside: Inside
    making: Making
    events: EventFeed
    audit_guard: AuditGuard

    @property
    def bindings(self) -> Bindings: ...
    @property
    def broker(self) -> Broker: ...
    @property
    def egress_log(self) -> EgressLog: ...
    @property
    def approvals(self) -> Approvals: ...
    @property
    def secrets(self) -> Secrets: ...


def tasks_of(parts: Parts, config: TasksConfig, agents: Agents) -> TaskParts:
    store, clock = parts.store, parts.clock
    given = _settings(parts, agents)
    masks = Masks(parts.broker.inside, parts.broker.lend)
    trees = Trees(store, parts.inside)
    workspaces = Workspaces(
        parts.sandboxes,
        parts.inside,
        masks,
        trees,
        changes=parts.changes,
        accounts=TaskAccounts(parts.broker, parts.egress_log),
    )
    wakes = Wakes()
    care = care_of(parts, workspaces)
    rules, policy = rules_of(config.guardian)
    run = TaskRun(
        store,
        clock,
        changes=parts.changes,
        workspaces=workspaces,
        settings=given,
        wakes=wakes,
        watching=_watching(parts, config, care, (rules, policy)),
        desks=_desks(parts, config, given),
        apps=AppHealths(clock, workspaces, providers=parts.providers, dial=dial),
        providers=parts.providers,
    )
    queue = TaskQueue(config.limits, clock)
    workers = _workers(parts, config, run, queue)
    tasks = _tasks(parts, given, workspaces, policy=policy, queue=queue)
    parts.sandboxes.holds.append(tasks.hold)
    parts.sandboxes.stop_guards.append(tasks.at_work)
    attempts = Attempts(store, clock, tasks, workspaces)
    waking = TaskWaking(parts.events, workers, wakes)
    return TaskParts(tasks, attempts, workers, waking, care)


def _tasks(
    parts: Parts,
    settings: AgentSettings,
    workspaces: Workspaces,
    *,
    policy: GuardianPolicy,
    queue: TaskQueue,
) -> Tasks:
    plans = TaskPlans(
        parts.store,
        parts.clock,
        changes=parts.changes,
        providers=parts.providers,
        settings=settings,
        inside=parts.inside,
        guardian=policy,
    )
    return Tasks(
        parts.store,
        parts.clock,
        parts.once,
        plans=plans,
        settings=settings,
        workspaces=workspaces,
        queue=queue,
    )


def _settings(parts: Parts, agents: Agents) -> AgentSettings:
    return AgentSettings(
        agents.known,
        parts.bindings,
        program=agents.program,
        auth_files=agents.auth_files,
        check_variables=PromptSecrets(parts.store, parts.clock, parts.secrets).check,
    )


def _watching(
    parts: Parts, config: TasksConfig, care: Care, guard: tuple[Sequence[Rule], GuardianPolicy]
) -> Watching:
    async def is_paused(task: TaskRecord) -> bool:
        sandbox = await parts.changes.find(task.team_id, task.sandbox_id)
        return sandbox.state is SandboxState.PAUSED

    async def is_set_aside(task: TaskRecord) -> bool:
        return (await parts.changes.find(task.team_id, task.sandbox_id)).quarantine is not None

    async def set_aside(task: TaskRecord, why: str) -> None:
        await care.quarantines.set(system(task.team_id, "guardian"), task.sandbox_id, why)

    return Watching(
        config,
        parts.approvals,
        _readers(config.reviewer),
        *guard,
        is_paused=is_paused,
        is_set_aside=is_set_aside,
        examine=care.diagnosis.examine,
        set_aside=set_aside,
    )


def _workers(parts: Parts, config: TasksConfig, run: TaskRun, queue: TaskQueue) -> TaskWorkers:
    return TaskWorkers(
        parts.store,
        parts.clock,
        run,
        turns=queue,
        give_up=run.give_up,
        most=config.at_once,
        version=__version__,
        health=config.health,
        alert_after_s=config.alert_after_s,
    )


def _desks(parts: Parts, config: TasksConfig, settings: AgentSettings) -> TaskDesks:
    questions = AgentQuestions(
        parts.approvals,
        parts.clock,
        modes=lambda name: settings.agent(name).traits.modes,
        timeout_s=config.guardian.ask_timeout_s,
    )
    return TaskDesks(parts.store, parts.clock, questions)


def _readers(config: ReviewerConfig) -> Readers:
    reviewer = ModelReviewer(config) if config.url else None
    return Readers(reviewer, every_s=config.every_s, timeout_s=config.timeout_s)
