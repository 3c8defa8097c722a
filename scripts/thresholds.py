"""The thresholds that callers meet, each from the one constant that the code uses."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Threshold:
    """A number with a meaning."""

    place: str
    """`module.NAME`, or `module.Class.field` for a default."""
    says: str
    unit: str
    changed: str = "–"
    """The setting that changes it, if any."""

    @property
    def value(self) -> float:
        module, _, name = self.place.rpartition(".")
        try:
            found: float = getattr(import_module(f"paddock.{module}"), name)
            return found
        except ModuleNotFoundError:
            module, _, kind = module.rpartition(".")
            made: Callable[[], object] = getattr(import_module(f"paddock.{module}"), kind)
            default: float = getattr(made(), name)
            return default

    @property
    def anchor(self) -> str:
        return "-".join(self.place.split(".")[-2:]).lower().replace("_", "-")

    @property
    def shown(self) -> str:
        return _UNITS[self.unit](self.value)


def _time(seconds: float) -> str:
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{seconds:g} s"


def _bytes(count: float) -> str:
    for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size and count % size == 0:
            return f"{int(count // size)} {name}"
    return f"{count:g} bytes"


_UNITS: dict[str, Callable[[float], str]] = {
    "time": _time,
    "bytes": _bytes,
    "count": lambda count: f"{count:g}",
    "percent": lambda count: f"{count:g} %",
    "MiB": lambda count: f"{count:g} MiB",
}

THRESHOLDS = (
    Threshold(
        "domain.lifetime.IDLE_TIMEOUT_S",
        "a sandbox without work is stopped after",
        "time",
        "`lifetime.idle_timeout_s`",
    ),
    Threshold(
        "domain.lifetime.ARCHIVE_AFTER_S",
        "one that is stopped is archived after",
        "time",
        "`lifetime.archive_after_s`",
    ),
    Threshold("domain.lifetime.MAX_TIMEOUT_S", "the longest timeout or idle timeout", "time"),
    Threshold("domain.lifetime.MAX_ARCHIVE_AFTER_S", "the longest wait for an archive", "time"),
    Threshold("domain.lifetime.MAX_KEEP_ALIVE_S", "the longest keep-alive", "time"),
    Threshold("services.commands.DEFAULT_TIMEOUT_S", "a command that is waited for ends", "time"),
    Threshold("services.commands.MAX_TIMEOUT_S", "the longest for one that is waited for", "time"),
    Threshold("services.commands.MAX_BACKGROUND_S", "the longest in the background", "time"),
    Threshold(
        "domain.keeping.Keeping.idle_after_s",
        "a sandbox that idles is kept as a snapshot after",
        "time",
        "`snapshots.idle_after_s`",
    ),
    Threshold(
        "domain.keeping.Keeping.kept_s",
        "an automatic snapshot is there for",
        "time",
        "`snapshots.kept_s`",
    ),
    Threshold(
        "domain.keeping.Keeping.most",
        "automatic snapshots of one sandbox",
        "count",
        "`snapshots.most`",
    ),
    Threshold("domain.ignoring.MOST_RULES", "rules of what a template's snapshots omit", "count"),
    Threshold("domain.ignoring.MOST_SHOWN", "paths left out that a snapshot names", "count"),
    Threshold(
        "services.housekeeping.Retention.events_s",
        "events are kept for",
        "time",
        "`retention.events_s`",
    ),
    Threshold(
        "services.housekeeping.Retention.deleted_sandboxes_s",
        "records of deleted sandboxes are kept for",
        "time",
        "`retention.deleted_sandboxes_s`",
    ),
    Threshold(
        "services.housekeeping.Retention.keys_s",
        "an Idempotency-Key is remembered for",
        "time",
        "`retention.keys_s`",
    ),
    Threshold(
        "services.housekeeping.Retention.tasks_s",
        "tasks that are over are kept for",
        "time",
        "`retention.tasks_s`",
    ),
    Threshold("domain.task_wish.LONGEST_PROMPT", "a prompt has at most", "bytes"),
    Threshold("domain.task_wish.DEFAULT_TIMEOUT_S", "a task may take, unless it says", "time"),
    Threshold("domain.task_wish.LONGEST_TIMEOUT_S", "a task may take at most", "time"),
    Threshold("domain.task_wish.DEFAULT_CHECK_S", "a check may take, unless it says", "time"),
    Threshold("domain.task_wish.MOST_ROUNDS", "rounds of a task, at most", "count"),
    Threshold("domain.task_wish.MOST_REVIEWS", "reviews of a task, at most", "count"),
    Threshold(
        "domain.task_rounds.MOST_STALLED", "rounds that change nothing, and no more", "count"
    ),
    Threshold("domain.message.LONGEST_MESSAGE", "a message to an agent has at most", "bytes"),
    Threshold("domain.message.MOST_QUEUED", "messages that wait for one agent", "count"),
    Threshold("domain.message.LONGEST_TTL_S", "a message to an agent is good for at most", "time"),
    Threshold("services.task_attempts.MOST", "attempts at the same", "count"),
    Threshold("domain.pressure.MODERATE_PERCENT", "free memory: moderate pressure", "percent"),
    Threshold("domain.pressure.HIGH_PERCENT", "free memory: high pressure", "percent"),
    Threshold("domain.pressure.CRITICAL_PERCENT", "free memory: critical pressure", "percent"),
    Threshold("domain.pressure.HYSTERESIS_PERCENT", "a band is left only above", "percent"),
    Threshold("domain.pressure.RESERVATION_MIB", "memory a new sandbox needs to start", "MiB"),
    Threshold("domain.secret.LARGEST", "the largest secret", "bytes"),
    Threshold("domain.command_policy.MOST_RULES", "rules in a policy", "count"),
    Threshold("domain.approval.MOST_PENDING", "approvals that a sandbox waits for", "count"),
    Threshold("domain.approval.MOST_AN_HOUR", "approvals of a sandbox within an hour", "count"),
    Threshold("domain.approval.ONCE_S", "what was allowed once is allowed again for", "time"),
    Threshold("domain.approval.DENIED_S", "what was denied is not asked again for", "time"),
    Threshold("domain.approval.EXPIRED_S", "what nobody answered is not asked again for", "time"),
    Threshold("gateway.asking.MOST_HELD", "connections of a sandbox that are held", "count"),
    Threshold("domain.command_policy.LONGEST_RULE", "characters of a rule's command", "count"),
    Threshold("adapters.shell_script.LARGEST_SCRIPT", "the largest script judged", "bytes"),
    Threshold("services.pools.LARGEST_POOL", "sandboxes that wait ready of one template", "count"),
    Threshold("domain.intake.MOST_SOURCES", "sources of events in one sandbox", "count"),
    Threshold(
        "gateway.journal.BURST", "destinations of a sandbox that are recorded at once", "count"
    ),
    Threshold(
        "gateway.journal.PER_SECOND", "further destinations of a sandbox per second", "count"
    ),
    Threshold("services.build_files.MOST_OF_TEAM", "uploaded build files of one team", "bytes"),
    Threshold("domain.volume.MOST_MOUNTS", "volumes that one sandbox mounts", "count"),
    Threshold("interfaces.api.paging.MAX_PAGE", "items of one page", "count"),
)
