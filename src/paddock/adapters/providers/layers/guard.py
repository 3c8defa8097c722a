"""Refuses what cannot work before the provider is touched, and says why."""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from paddock.adapters.providers.layers import rules
from paddock.adapters.providers.layers.layered import Call, Operation
from paddock.domain.egress import CLOSED, EgressPolicy, NetworkMode
from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound, Unsupported
from paddock.domain.ignoring import parsed
from paddock.domain.snapshot import SnapshotRef
from paddock.domain.volume import check_mount_paths, check_size
from paddock.ports.clock import Clock
from paddock.ports.provider import PauseKind, Provider, Ref, SandboxSpec

T = TypeVar("T")

# Which flag an operation stands behind. Operations that are not here are mandatory.
FLAGS: Mapping[Operation, str] = {
    Operation.PAUSE: "pause",
    Operation.RESUME: "pause",
    Operation.STOP: "stop",
    Operation.START: "stop",
    Operation.ARCHIVE: "archive",
    Operation.OPEN_DISK: "sleeping_disk",
    Operation.RENEW: "expires_itself",
    Operation.SNAPSHOT: "snapshot",
    Operation.SNAPSHOTS: "snapshot",
    Operation.DELETE_SNAPSHOT: "snapshot",
    Operation.FORK: "fork",
    Operation.CREATE_VOLUME: "volumes",
    Operation.DELETE_VOLUME: "volumes",
    Operation.OPEN_VOLUME: "volumes",
    Operation.SET_EGRESS: "live_egress",
    Operation.USAGE: "metrics",
}


class Guard:
    """Holds every call against the provider's own capabilities and the rules of the port.

    An argument means the same in every method, so that the rules go by its name.
    """

    def __init__(self, provider: Provider, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._rules: Mapping[str, Callable[..., None]] = {
            "ref": self._owned,
            "key": rules.check_key,
            "labels": rules.check_labels,
            "port": rules.check_port,
            "until": self._within_lifetime,
            "memory": self._kept,
            "ignore": self._left_out,
            "policy": self._enforceable,
            "volume": rules.check_volume,
            "size_mib": self._sized,
        }

    async def around(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        if flag := FLAGS.get(call.operation):
            self._claimed(call.operation, flag)
        for name, value in call.arguments.items():
            if name == "spec":
                self._possible(call.operation, value)
            elif rule := self._rules.get(name):
                rule(value)
        return await proceed()

    def _claimed(self, operation: str, flag: str, wish: str = "") -> None:
        value = getattr(self._provider.capabilities, flag)
        if value and value is not PauseKind.NO:
            return
        raise Unsupported(
            f"provider {self._provider.name} does not support {operation}{wish}: "
            f"its capability `{flag}` is off",
            remediation=f"choose a provider whose capabilities have `{flag}`",
        )

    def _owned(self, ref: Ref | SnapshotRef) -> None:
        """Also for destroy(): what is gone under the wrong provider's name is not gone (L12)."""
        if ref.provider != self._provider.name:
            raise NotFound(
                f"provider {self._provider.name} has no {ref.id}: "
                f"the reference belongs to provider {ref.provider}",
                remediation=f"ask provider {ref.provider}",
            )

    def _kept(self, memory: bool) -> None:
        """Told from the other refusals by what to do: there are lesser ways to keep something."""
        able = self._provider.capabilities
        if not memory or able.checkpoint:
            return
        ways = ["take it without memory, which keeps the disk"]
        if able.pause is PauseKind.MEMORY:
            ways.append("pause the sandbox, which keeps its memory in RAM")
        raise Unsupported(
            f"provider {self._provider.name} does not support snapshot with memory: "
            "its capability `checkpoint` is off",
            remediation=f"{', or '.join(ways)}; `paddock doctor` shows what was found here",
        )

    def _left_out(self, rules: tuple[str, ...]) -> None:
        if not rules:
            return
        parsed(rules)
        if not self._provider.capabilities.snapshot_ignore:
            raise Unsupported(
                f"provider {self._provider.name} does not support a snapshot that leaves paths "
                "out: its capability `snapshot_ignore` is off",
                remediation="take it with everything",
            )

    def _possible(self, operation: Operation, spec: SandboxSpec) -> None:
        if operation is Operation.FORK:
            rules.check_no_source(spec)
        else:
            rules.check_source(spec)
        if spec.snapshot is not None:
            self._claimed(operation, "snapshot", " from a snapshot")
            self._owned(spec.snapshot)
        if spec.egress != CLOSED:
            self._claimed(operation, "egress", f" with egress {spec.egress.mode.value!r}")
        self._enforceable(spec.egress, operation)
        rules.check_labels(spec.labels)
        rules.check_env(spec.env)
        for port in spec.ports:
            rules.check_port(port)
        if spec.volumes:
            self._claimed(operation, "volumes", " with volumes")
            check_mount_paths([mount.path for mount in spec.volumes])
        capabilities = self._provider.capabilities
        self._at_most("labels", len(spec.labels), capabilities.max_labels)
        self._at_most("ports", len(spec.ports), capabilities.max_ports)

    def _enforceable(
        self, policy: EgressPolicy, operation: Operation = Operation.SET_EGRESS
    ) -> None:
        if policy.mode is NetworkMode.ALLOWLIST:
            self._claimed(operation, "allowlist", " with egress 'allowlist'")

    def _sized(self, size_mib: int | None) -> None:
        if check_size(size_mib) is not None:
            self._claimed(Operation.CREATE_VOLUME, "disk_limit", " with a size")

    def _at_most(self, what: str, asked: int, most: int | None) -> None:
        if most is not None and asked > most:
            raise LimitExceeded(
                f"{asked} {what} were given, but provider {self._provider.name} has at most {most}",
                remediation=f"give at most {most} {what} or choose another provider",
            )

    def _within_lifetime(self, until: float) -> None:
        """Necessary, not sufficient: the provider counts from the creation, which is earlier."""
        if not math.isfinite(until):
            raise InvalidRequest(
                f"{until} is no moment in time", remediation="give seconds since 1970"
            )
        longest, seconds = self._provider.capabilities.max_lifetime_s, until - self._clock.wall()
        if longest is not None and seconds > longest:
            raise LimitExceeded(
                f"a sandbox of provider {self._provider.name} lives at most {longest:g} s; "
                f"{seconds:.0f} s from now were asked for",
                remediation=f"renew for at most {longest:g} s, or keep the work in a snapshot",
            )
