"""What has to be well with an app once an agent has worked at it, as somebody wishes it.

A task says it for itself; a manifest of an app fills the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from paddock.domain.errors import InvalidRequest

OUTCOME = "app health"
"""Among the checks of a round; no check may have this name where an app is looked at."""
DEFAULT_WITHIN_S = 25.0
LONGEST_WITHIN_S = 300.0
MOST_PROCESSES = 32
MOST_GLOBS = 64
LONGEST_GLOB = 256
LONGEST_PATH = 2048
_MOST_STARS = 4
_ANY = "**"
_PROCESS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PATH = re.compile(r"/[!-~]*")


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known of a kind of web app."""

    assets: tuple[str, ...] = ()
    """What its page is made of while it is developed: one that cannot be made breaks the page, and
    the page itself does not tell."""
    restart_on: tuple[str, ...] = ()
    """Files that its server reads only when it starts."""


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "": Preset(),
        "vite": Preset(
            assets=("/src/index.css", "/src/main.tsx"),
            restart_on=(
                "tailwind.config.*",
                "postcss.config.*",
                "vite.config.*",
                "tsconfig*.json",
                "**/src/index.css",
                "**/src/App.css",
            ),
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Web:
    """A port of the sandbox that has to answer."""

    port: int
    path: str = "/"
    preset: str = ""


@dataclass(frozen=True, slots=True)
class HealthWish:
    """All of it."""

    web: Web | None = None
    workers: tuple[str, ...] = ()
    """Supervised processes of the sandbox that are to run."""
    build: str = ""
    """The check of the task that builds it."""
    restart: tuple[str, ...] = ()
    """Supervised processes that are started anew when a file of `restart_on` was changed."""
    restart_on: tuple[str, ...] = ()
    """Globs of files; those of the preset unless said."""
    within_s: float = DEFAULT_WITHIN_S
    """So long it may take until it is up."""

    @property
    def globs(self) -> tuple[str, ...]:
        preset = PRESETS[self.web.preset] if self.web is not None else PRESETS[""]
        return self.restart_on or preset.restart_on

    @property
    def processes(self) -> tuple[str, ...]:
        """All that are named, each once."""
        return tuple(dict.fromkeys((*self.restart, *self.workers)))

    def time_for(self, deadline: float | None, now: float) -> float:
        """The task's own time is its app's too; one look there is in any case."""
        left = self.within_s if deadline is None else deadline - now
        return min(self.within_s, max(left, 0.0))

    def config_in(self, changed: Iterable[str]) -> tuple[str, ...]:
        """Of changed files, those that it has to be started anew for."""
        return tuple(path for path in changed if any(meets(glob, path) for glob in self.globs))


def expected(wish: HealthWish) -> str:
    """What an agent is told of it beforehand."""
    up = []
    if wish.web is not None:
        up.append(f"port {wish.web.port} answers {wish.web.path} without an error")
    if wish.workers:
        up.append(f"one of these processes runs: {', '.join(wish.workers)}")
    built = f", and the check {wish.build} does not fail" if wish.build else ""
    return f"{', or '.join(up)}{built}"


def meets(glob: str, path: str) -> bool:
    """Whether a path of the workspace is meant. As in .gitignore: a glob without a slash is a name
    in any directory, `**` stands for any directories, and `*` stays within one."""
    wanted, parts = glob.split("/"), path.split("/")
    wanted = [_ANY, *wanted] if len(wanted) == 1 else wanted
    reached = {0}
    """So many parts of the path may be used up; all ways at once, so that no glob takes long."""
    for each in wanted:
        if each == _ANY:
            reached = set(range(min(reached, default=len(parts)), len(parts)))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatchcase(parts[at], each)}
    return bool(reached) if wanted[-1] == _ANY else len(parts) in reached


def check_health(wish: HealthWish, checks: Sequence[str]) -> None:
    """InvalidRequest that says what is wrong with it; `checks` are the names of the task's."""
    if wish.web is None and not wish.workers:
        raise InvalidRequest(
            "health names nothing that could be well: neither a port nor a worker",
            remediation="give health.web with a port, or health.workers, or leave `health` out",
        )
    if wish.web is not None:
        _check_web(wish.web)
    if not 0 < wish.within_s <= LONGEST_WITHIN_S:
        raise InvalidRequest(
            f"health.within_s is {wish.within_s:g}; it must be more than 0 and at most "
            f"{LONGEST_WITHIN_S:g}",
            remediation="give it less; what takes longer to start is better made by a check",
        )
    _check_build(wish.build, checks)
    _check_processes(wish)
    _check_globs(wish)


def _check_web(web: Web) -> None:
    if not 1 <= web.port <= 65535:
        raise InvalidRequest(
            f"health.web.port is {web.port}; it must be 1 to 65535",
            remediation="give the port that the app listens on in the sandbox",
        )
    if len(web.path) > LONGEST_PATH or not _PATH.fullmatch(web.path):
        raise InvalidRequest(
            f"health.web.path is {web.path[:80]!r}; it must begin with / and have no spaces",
            remediation="give the path of a page, percent-encoded, such as /",
        )
    if web.preset not in PRESETS:
        known = ", ".join(sorted(filter(None, PRESETS)))
        raise InvalidRequest(
            f"there is no preset {web.preset[:80]!r}; known is: {known}",
            remediation="name one of those, or leave `preset` out",
        )


def _check_build(build: str, checks: Sequence[str]) -> None:
    if build and build not in checks:
        raise InvalidRequest(
            f"health.build names the check {build[:80]!r}, and the task has "
            f"{', '.join(checks) or 'none'}",
            remediation="name one of the task's checks, or add this one to them",
        )
    if OUTCOME in checks:
        raise InvalidRequest(
            f"a check is called {OUTCOME!r}, as is what is found of the app",
            remediation="give the check another name",
        )


def _check_processes(wish: HealthWish) -> None:
    if (count := len(wish.processes)) > MOST_PROCESSES:
        raise InvalidRequest(
            f"health names {count} processes; {MOST_PROCESSES} are the most",
            remediation="name those that say most",
        )
    for name in wish.processes:
        if not _PROCESS.fullmatch(name):
            raise InvalidRequest(
                f"health names the process {name[:80]!r}; names are 1 to 64 of A-Z a-z 0-9 _ -",
                remediation="give the name under which the sandbox supervises it",
            )


def _check_globs(wish: HealthWish) -> None:
    if len(wish.restart_on) > MOST_GLOBS:
        raise InvalidRequest(
            f"health.restart_on has {len(wish.restart_on)} globs; {MOST_GLOBS} are the most",
            remediation="use wider ones",
        )
    if wish.restart_on and not wish.restart:
        raise InvalidRequest(
            "health.restart_on says when, and health.restart does not say what to start anew",
            remediation="name the processes in health.restart, or leave `restart_on` out",
        )
    for glob in wish.restart_on:
        if why := _wrong_with(glob):
            raise InvalidRequest(
                f"health.restart_on has {glob[:80]!r}, which {why}",
                remediation="give paths within the workspace, such as vite.config.* or src/**",
            )


def _wrong_with(glob: str) -> str:
    parts = glob.split("/")
    for is_so, why in (
        (not glob or len(glob) > LONGEST_GLOB, f"is empty or longer than {LONGEST_GLOB}"),
        (not glob.isprintable(), "has characters that cannot be printed"),
        (glob.startswith("/"), "is not within the workspace"),
        ("" in parts or "." in parts or ".." in parts, "has an empty part, '.' or '..'"),
        (any(_ANY in part and part != _ANY for part in parts), "has '**' beside something else"),
        (parts.count(_ANY) > _MOST_STARS, f"has more than {_MOST_STARS} '**'"),
        (any(_is_open(part) for part in parts), "has a '[' that is not closed"),
    ):
        if is_so:
            return why
    return ""


def _is_open(part: str) -> bool:
    """Whether a set of characters is begun and does not end; the first of it may be a `]`."""
    at = part.find("[")
    while at >= 0:
        first = at + 2 if part[at + 1 : at + 2] == "!" else at + 1
        end = part.find("]", first + 1)
        if end < 0:
            return True
        at = part.find("[", end)
    return False
