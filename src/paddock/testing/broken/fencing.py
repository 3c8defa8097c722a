"""Providers that claim a fence, limits or a network that they do not have."""

from dataclasses import replace

from paddock.domain.egress import CLOSED, OPEN, EgressPolicy
from paddock.domain.sandbox import Resources
from paddock.ports.provider import Endpoint, Health, Isolation, Observation, Ref, SandboxSpec, Usage
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.conformance.subject import Terms
from paddock.testing.records import Record
from paddock.testing.reference import TEMPLATE, ReferenceProvider
from paddock.testing.simulated import SimulatedProvider

FENCE = (
    "commands_run_as_the_unprivileged_user",
    "a_closed_sandbox_reaches_neither_host_nor_network",
    "memory_beyond_the_limit_ends_with_oom",
    "a_fork_bomb_is_contained",
    "processor_time_is_limited",
    "processes_of_the_host_are_not_seen",
    "files_of_the_host_are_not_read",
    "neighbours_see_nothing_of_each_other",
    "nothing_can_be_mounted",
    "the_clock_cannot_be_set",
    "the_guest_is_out_of_reach_of_commands",
)
# Far below what an idle or a busy host would give, so that the excess shows on both.
SMALL = Resources(cpus=0.1, memory_mib=64, disk_mib=16, pids=16)


class Silent(ReferenceProvider):
    """Says nothing about the fence that it does not have."""

    async def check(self) -> Health:
        return Health(usable=True, findings=())


class AcceptsOpen(ReferenceProvider):
    """Takes any egress policy and looks at none."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        return await super().create(key, replace(spec, egress=CLOSED))


class NeverOpens(SimulatedProvider):
    """Keeps closed what shall be open."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        return await super().create(key, replace(spec, egress=CLOSED))


class NeverCloses(SimulatedProvider):
    """Leaves open what shall be closed."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        return await super().create(key, replace(spec, egress=OPEN))


class PretendsToSetEgress(SimulatedProvider):
    """Takes a new policy and does nothing with it."""

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        self._record(ref)


class WrongDoor(ReferenceProvider):
    """Leads to the port next to the one asked for."""

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        return replace(await super().endpoint(ref, port), url=f"http://127.0.0.1:{port + 1}")


class GivesAnyPort(SimulatedProvider):
    """Leads to ports that it says it cannot lead to."""

    async def endpoint(self, ref: Ref, port: int) -> Endpoint:
        return Endpoint(port, netns_pid=self._running(ref).pid)


class UsageWithoutClaim(ReferenceProvider):
    """Answers with nothing instead of refusing."""

    async def usage(self, ref: Ref) -> Usage:
        self._record(ref)
        return Usage()


class FrozenMeter(SimulatedProvider):
    """Shows the same figures for ever."""

    async def usage(self, ref: Ref) -> Usage:
        self._record(ref)
        return Usage(cpu_seconds=1.0, memory_bytes=1 << 20, disk_bytes=1 << 20, pids=1)


class RenewsForEver(SimulatedProvider):
    """Promises any lifetime."""

    async def renew(self, ref: Ref, until: float) -> Observation:
        return await self.observe(ref)


class RenewsWithoutClaim(ReferenceProvider):
    """Accepts what it cannot do."""

    async def renew(self, ref: Ref, until: float) -> Observation:
        return await self.observe(ref)


class SharedHome(ReferenceProvider):
    """Has one home for all."""

    def _argv(self, record: Record) -> tuple[str, ...]:
        shared = self._place / "home"
        shared.mkdir(exist_ok=True)
        own = str(self._disk(record.id))
        return tuple(str(shared) if word == own else word for word in super()._argv(record))


DEFECTS = (
    Defect(
        "has no fence and hides it", Silent, (*FENCE, "the_disk_is_limited_or_at_least_watched")
    ),
    Defect(
        "claims a fence",
        claiming(ReferenceProvider, isolation=Isolation.CONTAINER),
        FENCE,
        Terms(TEMPLATE, limits=SMALL),
    ),
    Defect(
        "claims a disk limit",
        claiming(ReferenceProvider, disk_limit=True),
        ("the_disk_is_limited_or_at_least_watched",),
        Terms(TEMPLATE, limits=SMALL),
    ),
    Defect("never closes", NeverCloses, ("a_closed_sandbox_reaches_neither_host_nor_network",)),
    Defect("never opens", NeverOpens, ("an_open_sandbox_reaches_the_network",)),
    Defect(
        "accepts any policy",
        AcceptsOpen,
        (
            "an_open_sandbox_reaches_the_network",
            "an_allowlist_lets_out_what_it_names_and_nothing_else",
        ),
    ),
    Defect(
        "takes an allowlist for an open network",
        claiming(SimulatedProvider, allowlist=True),
        ("an_allowlist_lets_out_what_it_names_and_nothing_else",),
    ),
    Defect(
        "pretends to change egress",
        claiming(PretendsToSetEgress, live_egress=True),
        ("egress_is_changed_while_it_runs",),
    ),
    Defect(
        "changes egress without claiming it",
        PretendsToSetEgress,
        ("egress_is_changed_while_it_runs",),
    ),
    Defect(
        "leads to the wrong port",
        WrongDoor,
        ("a_declared_port_is_reached_from_outside", "a_port_may_be_opened_later"),
        Terms(TEMPLATE, patience=0.1),
    ),
    Defect("leads to any port without claiming it", GivesAnyPort, ("a_port_may_be_opened_later",)),
    Defect("measures without claiming it", UsageWithoutClaim, ("usage_is_measured",)),
    Defect(
        "shows the same figures for ever",
        FrozenMeter,
        ("usage_is_measured", "the_disk_is_limited_or_at_least_watched"),
    ),
    Defect("renews for ever", RenewsForEver, ("a_lifetime_is_renewed_within_its_maximum",)),
    Defect(
        "renews without claiming it",
        RenewsWithoutClaim,
        ("a_lifetime_is_renewed_within_its_maximum",),
    ),
    Defect("has one home for all", SharedHome, ("each_sandbox_has_a_home_of_its_own",)),
)
