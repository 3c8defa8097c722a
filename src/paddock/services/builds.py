"""A team's own templates: built step by step in a sandbox, kept as a snapshot, found by name."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import msgspec

from paddock.domain.build import (
    MOST_LINES,
    Build,
    BuildState,
    Family,
    Left,
    Line,
    Step,
    StepFailed,
    check_build_name,
    check_tag,
)
from paddock.domain.egress import EgressWish
from paddock.domain.errors import Conflict, LimitExceeded, NotFound, PaddockError
from paddock.domain.ids import new_ulid
from paddock.domain.image_reference import check_tenants
from paddock.domain.lifetime import Terms
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import Limits
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction
from paddock.services.build_files import BuildFile, BuildFiles
from paddock.services.build_records import (
    DEFAULT_TAG,
    check_free,
    family_key,
    read_family,
    without_oldest,
    write_family,
)
from paddock.services.build_steps import Bench
from paddock.services.inside import Inside
from paddock.services.policies import Policies
from paddock.services.sandboxes import Sandboxes
from paddock.services.snapshots import Snapshots
from paddock.services.taking import Capture
from paddock.services.wishes import Wish

_log = logging.getLogger(__name__)
_BUILD_LABEL = "paddock.build"
"""Of the sandbox that something is built in, and of the snapshot that is left of it."""
_LONGEST_S = 2 * 3600.0
_MOST_REMEMBERED = 100
_MOST_WAITING = 20
"""Builds of a team that were begun and not started."""
_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How it is built."""

    template: str = ""
    snapshot: str = ""
    base: Left = field(default_factory=Left)
    """What the build that it begins with has left."""
    steps: tuple[Step, ...] = ()
    start: str = ""
    ready: str = ""
    egress: EgressWish | None = None


@dataclass(slots=True)
class _Work:
    """A build of this process."""

    team_id: str
    build: Build
    lines: list[Line]
    limits: Limits
    task: asyncio.Task[None] | None = None


class Builds:
    """The verbs of a build. Everything is the team's own."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        sandboxes: Sandboxes,
        snapshots: Snapshots,
        inside: Inside,
        policies: Policies,
        files: BuildFiles,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._inside = inside
        self._policies = policies
        self.files = files
        self._work: dict[str, _Work] = {}

    async def begin(
        self, principal: Principal, name: str, tags: Sequence[str], limits: Limits
    ) -> Build:
        """A build that waits to be told how."""
        principal.require(Scope.TEMPLATES_WRITE)
        wanted = tuple(dict.fromkeys(check_tag(tag) for tag in tags)) or (DEFAULT_TAG,)
        build = Build(str(uuid.uuid4()), check_build_name(name), self._clock.wall(), wanted)
        self._forget_oldest()
        self._check_waiting(principal.team_id)
        await self._store.read(lambda tx: check_free(tx, principal.team_id, name))
        await self._write(principal.team_id, build)
        self._work[build.id] = _Work(principal.team_id, build, [], limits)
        return build

    async def start(self, principal: Principal, build_id: str, plan: Plan) -> None:
        """It goes on without its caller. Conflict when it was started before."""
        principal.require(Scope.TEMPLATES_WRITE)
        work = self._work.get(build_id)
        if work is None or work.team_id != principal.team_id or work.task is not None:
            raise Conflict(f"build {build_id} was started before", remediation="begin another")
        check_tenants(plan.template)
        work.build = replace(work.build, state=BuildState.BUILDING)
        await self._write(principal.team_id, work.build)
        work.task = asyncio.create_task(
            self._carry_out(principal, work, plan), name=f"build {build_id}"
        )

    async def look(
        self, principal: Principal, name: str, build_id: str
    ) -> tuple[Build, Sequence[Line]]:
        """How it is, and all that was said; what another process has begun and not ended, failed.
        NotFound when it is not the team's."""
        principal.require(Scope.TEMPLATES_READ)
        work = self._work.get(build_id)
        if work is not None and (work.team_id, work.build.name) == (principal.team_id, name):
            return work.build, work.lines
        family = await self.family(principal, name)
        build = family.builds.get(build_id)
        if build is None:
            raise NotFound(f"template {name[:80]} has no build {build_id[:80]}")
        if build.state in (BuildState.WAITING, BuildState.BUILDING):
            why = "the server was started anew meanwhile; build it again"
            build = replace(build, state=BuildState.FAILED, why=why)
        return build, ()

    async def family(self, principal: Principal, name: str) -> Family:
        """All builds of a name; NotFound when there never was one."""
        principal.require(Scope.TEMPLATES_READ)
        found = await self._store.read(lambda tx: read_family(tx, principal.team_id, name))
        if not found.builds:
            raise NotFound(f"there is no template {name[:80]} of your team")
        return found

    async def is_taken(self, principal: Principal, name: str) -> bool:
        """Whether the team has built something of that name."""
        return bool(
            (await self._store.read(lambda tx: read_family(tx, principal.team_id, name))).builds
        )

    async def families(self, principal: Principal) -> Sequence[Family]:
        principal.require(Scope.TEMPLATES_READ)
        prefix = family_key(principal.team_id, "")
        found = await self._store.read(lambda tx: tx.values.all(prefix))
        return [msgspec.convert(value, Family) for value in found.values()]

    async def find(self, principal: Principal, name: str, tag: str) -> Build:
        """The ready build that a tag means."""
        family = await self.family(principal, name)
        build = family.builds.get(family.tags.get(tag, ""))
        if build is None:
            raise NotFound(f"template {name[:80]} has no tag {tag[:80]}")
        return build

    async def tag(self, principal: Principal, name: str, tag: str, more: Sequence[str]) -> Build:
        """What one tag means, others mean from now on."""
        principal.require(Scope.TEMPLATES_WRITE)
        wanted = [check_tag(each) for each in more]
        build = await self.find(principal, name, tag)

        def assign(tx: Transaction) -> None:
            family = read_family(tx, principal.team_id, name)
            tags = {**family.tags, **dict.fromkeys(wanted, build.id)}
            write_family(tx, principal.team_id, replace(family, tags=tags))

        await self._store.write(assign)
        await self._collect(principal, name)
        return build

    async def untag(self, principal: Principal, name: str, tags: Sequence[str]) -> None:
        """What no other tag means goes."""
        principal.require(Scope.TEMPLATES_WRITE)
        family = await self.family(principal, name)
        if unknown := set(tags) - set(family.tags):
            raise NotFound(f"template {name[:80]} has no tag {', '.join(sorted(unknown))[:80]}")

        def remove(tx: Transaction) -> None:
            now = read_family(tx, principal.team_id, name)
            kept = {tag: build for tag, build in now.tags.items() if tag not in tags}
            write_family(tx, principal.team_id, replace(now, tags=kept))

        await self._store.write(remove)
        await self._collect(principal, name)

    async def delete(self, principal: Principal, name: str) -> None:
        """All of its builds. Sandboxes made of them are not touched."""
        principal.require(Scope.TEMPLATES_WRITE)
        family = await self.family(principal, name)
        for build in family.builds.values():
            if (work := self._work.pop(build.id, None)) is not None and work.task is not None:
                work.task.cancel()
            if build.left.snapshot_id:
                await self._forget(principal, build.left.snapshot_id)
        await self._store.write(lambda tx: tx.values.remove(family_key(principal.team_id, name)))

    def _forget_oldest(self) -> None:
        """What was said in builds that have ended: their outcome is kept elsewhere."""
        ended = [key for key, work in self._work.items() if work.task and work.task.done()]
        for key in ended[: max(0, len(ended) - _MOST_REMEMBERED)]:
            del self._work[key]
        since = self._clock.wall() - _LONGEST_WAIT_S
        for key, work in list(self._work.items()):
            if work.task is None and work.build.created_at < since:
                del self._work[key]

    def _check_waiting(self, team_id: str) -> None:
        waiting = [
            each for each in self._work.values() if each.team_id == team_id and not each.task
        ]
        if len(waiting) >= _MOST_WAITING:
            raise LimitExceeded(
                f"your team has {len(waiting)} template builds that were not started; the limit is "
                f"{_MOST_WAITING}",
                remediation="start them, or delete their templates; a build that is not started "
                f"within {_LONGEST_WAIT_S / 60:.0f} minutes is dropped",
            )

    async def aclose(self) -> None:
        tasks = [work.task for work in self._work.values() if work.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, principal: Principal, work: _Work, plan: Plan) -> None:
        def say(text: str, level: str = "info") -> None:
            if len(work.lines) < MOST_LINES:
                work.lines.append(Line(self._clock.wall(), text, level))

        try:
            left = await self._build(principal, work, plan, say=say)
            done = replace(work.build, state=BuildState.READY, left=left)
            say("the template is ready")
        except StepFailed as failure:
            done = replace(
                work.build,
                state=BuildState.FAILED,
                why=failure.why,
                failed_step=failure.step,
                attempt=failure.attempt,
            )
            say(failure.why, "error")
        except PaddockError as error:
            done = replace(work.build, state=BuildState.FAILED, why=str(error))
            say(error.message, "error")
        except Exception:  # noqa: BLE001 - who waits for it has to be told
            _log.exception("a build failed", extra={"build": work.build.id})
            done = replace(work.build, state=BuildState.FAILED, why="the server made a mistake")
        await self._write(principal.team_id, done)
        work.build = done
        await self._collect(principal, done.name)

    async def _build(
        self, principal: Principal, work: _Work, plan: Plan, *, say: Callable[[str], None]
    ) -> Left:
        wish = Wish(
            template=plan.template,
            snapshot=plan.snapshot,
            labels={_BUILD_LABEL: work.build.id},
            env=plan.base.env,
            resources=work.limits,
            lifetime=Terms(timeout_s=_LONGEST_S, idle_timeout_s=None),
            egress=plan.egress,
        )
        say(f"begins with {plan.template or 'an earlier build'}")
        sandbox = await self._sandboxes.create(principal, wish)
        try:
            left = await self._steps(principal, sandbox, plan, say=say)
            left = replace(left, start=plan.start, ready=plan.ready)
            capture = Capture(f"build-{new_ulid()}")
            snapshot = await self._snapshots.take(principal, sandbox.id, capture)
            try:
                await self._try_out(principal, sandbox, left, say=say)
            except BaseException:
                await self._forget(principal, snapshot.id)
                raise
            return replace(left, snapshot_id=snapshot.id)
        finally:
            await self._sandboxes.delete(principal, sandbox.id, force=True)

    async def _steps(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        plan: Plan,
        *,
        say: Callable[[str], None],
    ) -> Left:
        async with self._bench(principal, sandbox, say) as bench:
            bench.left = replace(plan.base, user=plan.base.user or bench.left.user)
            for number, step in enumerate(plan.steps, 1):
                await bench.do(number, step)
            return bench.left

    async def _try_out(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        left: Left,
        *,
        say: Callable[[str], None],
    ) -> None:
        """After the snapshot: what it leaves on the disk is not in the template."""
        if left.start or left.ready:
            async with self._bench(principal, sandbox, say) as bench:
                bench.left = left
                await bench.try_out(left.start, left.ready)

    @asynccontextmanager
    async def _bench(
        self, principal: Principal, sandbox: SandboxRecord, say: Callable[[str], None]
    ) -> AsyncIterator[Bench]:
        def files(digest: str) -> AsyncIterator[bytes]:
            return self.files.read(BuildFile(principal.team_id, principal.holder, digest))

        async def check(argv: Sequence[str], env: Mapping[str, str]) -> None:
            await self._policies.check(principal, sandbox, argv, env)

        async with self._inside.enter(principal, sandbox.id, "build") as entered:
            yield Bench(entered.guest, files, say, check)

    async def _write(self, team_id: str, build: Build) -> None:
        """With its tags, once it is ready."""

        def write(tx: Transaction) -> None:
            family = read_family(tx, team_id, build.name)
            tags = dict(family.tags)
            if build.state is BuildState.READY:
                tags |= dict.fromkeys(build.tags, build.id)
            builds = without_oldest({**family.builds, build.id: build})
            write_family(tx, team_id, Family(build.name, tags, builds))

        await self._store.write(write)

    async def _collect(self, principal: Principal, name: str) -> None:
        """Builds that were ready and that no tag means any more: nobody can ask for them."""

        def drop(tx: Transaction) -> Sequence[Build]:
            family = read_family(tx, principal.team_id, name)
            meant = set(family.tags.values())
            done = [each for each in family.builds.values() if each.state is BuildState.READY]
            dropped = [each for each in done if each.id not in meant]
            gone = {each.id for each in dropped}
            kept = {key: each for key, each in family.builds.items() if key not in gone}
            if dropped and kept:
                write_family(tx, principal.team_id, replace(family, builds=kept))
            elif dropped:
                tx.values.remove(family_key(principal.team_id, name))
            return dropped

        for build in await self._store.write(drop):
            await self._forget(principal, build.left.snapshot_id)

    async def _forget(self, principal: Principal, snapshot_id: str) -> None:
        try:
            await self._snapshots.delete(principal, snapshot_id)
        except NotFound:
            return


def is_build(record: SandboxRecord | SnapshotRecord) -> bool:
    """Whether it is part of a build, and not what somebody works in or has taken."""
    return _BUILD_LABEL in record.labels
