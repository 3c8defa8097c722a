"""The control plane as one running thing: store, providers, services, rounds, and the listener."""

import asyncio
import gc
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from paddock.adapters.audit_head import AuditHeadFile
from paddock.adapters.host_memory import host_memory
from paddock.adapters.providers.dialing import dial
from paddock.adapters.providers.layers import Hold, Layered, Measure
from paddock.adapters.shell_script import read_script
from paddock.adapters.store.store import open_store
from paddock.adapters.tracing import Begin
from paddock.domain.errors import InvalidRequest
from paddock.domain.ids import new_id
from paddock.domain.pressure import RESERVATION_MIB
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services
from paddock.interfaces.api.hot import Changeable, hot
from paddock.interfaces.api.limits import RateLimit
from paddock.interfaces.api.metrics import Metrics, count_states
from paddock.interfaces.cli.toolbox import Progress
from paddock.interfaces.e2b.services import E2bServices
from paddock.ports.clock import Clock, SystemClock
from paddock.ports.store import Store
from paddock.ports.vault import Vault
from paddock.services.access import Access
from paddock.services.activity import Activity
from paddock.services.admission import Admission
from paddock.services.archives import Archives
from paddock.services.audit_guard import AuditGuard
from paddock.services.build_starts import BuildStarts
from paddock.services.changes import Changes
from paddock.services.commands import Commands
from paddock.services.egress_log import EgressLog
from paddock.services.environment import Environment
from paddock.services.events import EventFeed
from paddock.services.files import Files
from paddock.services.guests import Guests
from paddock.services.health import ProviderHealth
from paddock.services.history import History
from paddock.services.inside import Inside
from paddock.services.intake import Intake
from paddock.services.keeping import AutomaticSnapshots
from paddock.services.making import Making
from paddock.services.once import Once
from paddock.services.people import People
from paddock.services.policies import Policies
from paddock.services.pools import Pools
from paddock.services.previews import Previews
from paddock.services.providers import Providers
from paddock.services.purge_tasks import PurgeTasks
from paddock.services.purges import Purges
from paddock.services.quotas import Quotas
from paddock.services.recall import Recall
from paddock.services.sandboxes import Sandboxes
from paddock.services.sessions import Sessions
from paddock.services.settings import SettingsAtWork
from paddock.services.snapshots import Snapshots
from paddock.services.template_builds import TemplateBuilds
from paddock.services.templates import Templates
from paddock.services.terminals import Terminals
from paddock.services.volumes import Volumes
from paddock.services.work import WorkInside
from paddock.settings import ServerConfig, Settings
from paddock.wiring.agents import agents_of
from paddock.wiring.anyone import anyone
from paddock.wiring.broker import brokered
from paddock.wiring.configured import configured
from paddock.wiring.e2b import e2b_of
from paddock.wiring.egress import egress_of
from paddock.wiring.keys import keep, open_vault
from paddock.wiring.listening import check_free, listening
from paddock.wiring.opened import in_use
from paddock.wiring.own_ports import close_own_ports
from paddock.wiring.rounds import Rounds, rounds_of
from paddock.wiring.ssh import ssh_listening, ssh_of
from paddock.wiring.tasks import tasks_of
from paddock.wiring.tracing import calls_traced, traced, with_traces

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
TOKEN_FILE = "admin-token"  # noqa: S105 - the name of a file


@dataclass(frozen=True, slots=True)
class Plane:
    """The control plane, assembled."""

    services: Services
    rounds: Rounds


async def serve(
    settings: Settings, *, auth: bool, progress: Progress, ready: Callable[[str], None]
) -> None:
    """Until cancelled. `ready` is told the address once everything answers there."""
    config = settings.server
    if not auth and config.host not in _LOOPBACK:
        raise InvalidRequest(
            f"--no-auth with the address {config.host} would let in everyone who reaches it",
            remediation="leave --no-auth out, or listen on 127.0.0.1",
        )
    check_free(config)
    async with (
        traced(settings.telemetry) as trace,
        in_use(settings, progress) as providers,
        assembled(settings, providers, auth=auth, trace=trace) as plane,
        listening(settings.server, plane.services) as url,
        ssh_listening(settings.server, plane.services),
    ):
        await close_own_ports(providers.flows)
        _settle_in()
        ready(url)
        async with asyncio.TaskGroup() as group:
            plane.rounds.begin(group)
            group.create_task(plane.services.broker.run(), name="broker")


def _settle_in() -> None:
    """What is there when everything answers stays until the end. Were it looked at for garbage
    again and again, that would be a fifth of what a burst of creations costs."""
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def assembled(
    settings: Settings, providers: Providers, *, auth: bool, trace: Begin | None = None
) -> AsyncIterator[Plane]:
    """All services on these providers, opened in order and closed in reverse."""
    data = settings.server.data_dir
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_store(settings))
        vault = open_vault(data)
        once = Once(store, SystemClock(), vault)
        access = Access(store, SystemClock(), once)
        await access.begin(lambda token: keep(data / TOKEN_FILE, token))
        await stack.enter_async_context(access.stays.watching())
        installation = await _kept(store, "installation", new_id("ins"))
        secret = bytes.fromhex(await _kept(store, "preview-key", secrets.token_hex(32)))
        parts = _Parts(store, calls_traced(providers, trace), installation, once)
        guarding = _guarded(store, data, installation)
        parts.audit_guard = await stack.enter_async_context(guarding)
        parts.open_egress(settings)
        await parts.open_secrets(vault)
        parts.open_tasks(settings)
        stack.push_async_callback(parts.agents.aclose)
        await stack.enter_async_context(parts.metrics.watching())
        await stack.enter_async_context(parts.guests)
        stack.push_async_callback(parts.builds.aclose)  # after `making`, which waits for builds
        stack.push_async_callback(parts.making.aclose)
        await stack.enter_async_context(parts.events)
        parts.anyone = None if auth else await anyone(store)
        previews = parts.previews(access, secret)
        rounds = rounds_of(parts, settings.server.reap_every_s)
        at_work = parts.settings(settings, rounds)
        await stack.enter_async_context(parts.in_force(at_work))
        theirs = e2b_of(parts, previews, access.stays, key=secret, settings=settings)
        services = parts.services(settings, access, theirs)
        await services.quotas.set_defaults(settings.quotas.limits)
        for each in (services.previews, theirs.builds, services.purges, services.commands.log):
            stack.push_async_callback(each.aclose)
        await _take_up(services, rounds)
        await stack.enter_async_context(services.purges.watching())
        yield Plane(with_traces(services, trace), rounds)


def _guarded(
    store: Store, data: Path, installation: str
) -> AbstractAsyncContextManager[AuditGuard]:
    # By installation: another database has another log, whose end is elsewhere.
    head = AuditHeadFile(data / f"audit-head.{installation}.json")
    return AuditGuard(store, SystemClock(), head).watching()


async def _kept(store: Store, name: str, new: str) -> str:
    """What was settled when the installation first began."""
    return str(await store.write(lambda tx: tx.values.add(name, new)))


async def _take_up(services: Services, rounds: Rounds) -> None:
    """What the last process left half done."""
    await rounds.reconciler.look()
    await services.snapshots.settle()
    await services.volumes.settle(at_start=True)
    await services.purges.settle()


def _store(settings: Settings) -> AbstractAsyncContextManager[Store]:
    place = settings.server.database or settings.server.data_dir / "paddock.db"
    # News of other processes need not be asked for where there can be none.
    return open_store(place, replace(settings.store, exclusive=not settings.server.database))


def _watched(providers: Providers, metrics: Metrics, clock: Clock) -> Providers:
    """What is not asked, because a limit lasts, is not measured."""
    measure = Measure(metrics.observe_call, clock)
    return providers.wrapped(lambda each: Layered(Layered(each, measure), Hold(clock)))


class _Parts:
    """What services are made of, each made once."""

    audit_guard: AuditGuard

    def __init__(self, store: Store, providers: Providers, installation: str, once: Once) -> None:
        self.store, self.installation, self.once = store, installation, once
        self.anyone: Principal | None = None
        self.clock = clock = SystemClock()
        self.metrics = metrics = Metrics(lambda: count_states(self.changes))
        store.on_events(metrics.hear)
        self.providers = providers = _watched(providers, metrics, clock)
        self.activity, self.recall = Activity(clock), Recall(store, clock)
        self.changes = Changes(store, clock, self.recall)
        self.guests = Guests(providers)
        self.builds = TemplateBuilds(store, clock, providers)
        self.making = Making(
            store,
            self.changes,
            providers,
            clock=clock,
            installation=installation,
            builds=self.builds,
            admission=Admission(host_memory, RESERVATION_MIB),
        )
        self.sandboxes = Sandboxes(
            store,
            clock,
            providers,
            changes=self.changes,
            making=self.making,
            guests=self.guests,
            activity=self.activity,
        )
        self.snapshots = Snapshots(
            store,
            clock,
            providers,
            changes=self.changes,
            making=self.making,
            guests=self.guests,
        )
        self.events = EventFeed(store)
        self.automatic = self._automatic()
        self._begin_inside()

    def _automatic(self) -> AutomaticSnapshots:
        made = AutomaticSnapshots(
            self.store,
            self.clock,
            self.providers,
            changes=self.changes,
            snapshots=self.snapshots,
            activity=self.activity,
        )
        self.sandboxes.farewells.append(made.before_delete)
        return made

    def _begin_inside(self) -> None:
        """What happens in sandboxes, and what waits to become one."""
        store, clock = self.store, self.clock
        self.policies = Policies(store, clock, self.changes, read_script)
        self.pools = Pools(store, clock, self.providers)
        self.volumes = Volumes(store, clock, self.providers)
        self.inside = Inside(self.changes, self.guests, self.activity, self.sandboxes)
        self.commands = Commands(self.inside, store, clock, self.policies)
        self.making.starts.append(BuildStarts(store, clock, self.guests, self.policies).start)
        self.work = WorkInside(store, self.inside, self.guests)
        self.sandboxes.holds.append(self.work.hold)

    def previews(self, access: Access, key: bytes) -> Previews:
        self.shown = Previews(
            self.store,
            self.clock,
            changes=self.changes,
            recall=self.recall,
            sandboxes=self.sandboxes,
            providers=self.providers,
            guests=self.guests,
            activity=self.activity,
            access=access,
            once=self.once,
            dial=dial,
            key=key,
        )
        return self.shown

    def settings(self, settings: Settings, rounds: Rounds) -> SettingsAtWork:
        known = configured(settings)
        self.rate = RateLimit(settings.server.requests_per_second, settings.server.requests_burst)
        parts = Changeable(
            self.rate, self.making, rounds.reaper, rounds.housekeeping, self.snapshots
        )
        self.at_work = SettingsAtWork(self.store, self.clock, known, hot(known, parts))
        return self.at_work

    @asynccontextmanager
    async def in_force(self, settings: SettingsAtWork) -> AsyncIterator[None]:
        """What was set at run time holds, and what other processes set while this is open."""
        await settings.load()
        async with (
            settings.following(),
            self.policies.following(),
            self.egress.following(),
            self.pools.kept(),
        ):
            yield

    def services(self, configured: Settings, access: Access, e2b: E2bServices) -> Services:
        return self._with_what_is_inside(configured)(
            store=self.store,
            access=access,
            people=self._people(access),
            purges=self._purges(),
            quotas=Quotas(self.store, self.clock, access),
            sandboxes=self.sandboxes,
            egress=self.egress,
            approvals=self.approvals,
            pools=self.pools,
            snapshots=self.snapshots,
            automatic=self.automatic,
            events=self.events,
            intake=self._intake(configured.server),
            audit=self.audit_guard,
            history=History(self.store, self.changes),
            previews=self.shown,
            preview_domain=configured.server.preview_domain,
            public_url=configured.server.public_url,
            ssh=ssh_of(self, self.shown, configured.server.ssh_public),
            providers=self.providers,
            health=ProviderHealth(self.providers, self.clock),
            metrics=self.metrics,
            settings=self.at_work,
            secrets=self.secrets,
            bindings=self.bindings,
            broker=self.broker,
            agents=self.agents,
            templates=Templates(
                self.store, self.clock, self.providers, builds=self.builds, teams=e2b.builds
            ),
            volumes=self.volumes,
            rate=self.rate,
            e2b=e2b,
            anyone=self.anyone,
        )

    def _with_what_is_inside(self, configured: Settings) -> Callable[..., Services]:
        """Of the services, those for what happens in sandboxes."""
        return partial(
            Services,
            environment=Environment(self.changes, self.guests),
            commands=self.commands,
            terminals=Terminals(self.inside, self.commands),
            work=self.work,
            files=Files(self.inside, self.store, self.clock, configured.files),
            archives=Archives(self.inside, self.store, self.clock, configured.files),
            inside=self.inside,
            policies=self.policies,
            tasks=self.task_parts.tasks,
            attempts=self.task_parts.attempts,
            care=self.task_parts.care,
        )

    def _people(self, access: Access) -> People:
        sessions = Sessions(self.store, self.clock, access)
        return People(self.store, self.clock, access, once=self.once, sessions=sessions)

    def _purges(self) -> Purges:
        return Purges(
            self.store,
            self.clock,
            sandboxes=self.sandboxes,
            snapshots=self.snapshots,
            secrets=self.secrets,
            tasks=PurgeTasks(self.store, self.task_parts.tasks),
            recall=self.recall,
        )

    def open_egress(self, settings: Settings) -> None:
        self.egress, self.approvals, self.egress_asks = egress_of(self, settings)

    async def open_secrets(self, vault: Vault) -> None:
        self.secrets, self.bindings, self.broker, self.headers = await brokered(self, vault)
        self.egress_log = EgressLog(
            self.store, self.clock, self.egress, self.providers.flows, self.broker.inside
        )

    def open_tasks(self, settings: Settings) -> None:
        self.agents = agents_of(self, settings)
        self.task_parts = tasks_of(self, settings.tasks, self.agents)

    def _intake(self, config: ServerConfig) -> Intake:
        pace = RateLimit(config.events_per_second, config.events_burst)
        return Intake(self.store, self.clock, self.changes, pace.take, inside=self.broker.inside)
