"""What the scripted model was asked: kept for assertions, within bounds."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paddock.testing.models.conversation import Asked, Json


@dataclass(slots=True)
class Request:
    """One request. It has no `script` and no `turn` if it moves none, and a `status` in the end."""

    number: int
    at: float
    path: str
    headers: Mapping[str, str]
    size: int
    body: Json = field(default_factory=dict)
    dialect: str = ""
    asked: Asked | None = None
    script: str = ""
    turn: int | None = None
    status: int | None = None
    problem: str = ""
    was_cut: bool = False

    @property
    def is_turn(self) -> bool:
        return self.turn is not None

    def said(self) -> str:
        """All that the model did not say itself: prompts, messages, results of tools."""
        return self.asked.said() if self.asked else ""

    def shown(self) -> Json:
        """As JSON, for those who ask from outside of the process."""
        names = ("number", "at", "path", "size", "dialect", "script", "turn", "status", "problem")
        return {
            **{name: getattr(self, name) for name in names},
            "was_cut": self.was_cut,
            "headers": dict(self.headers),
            "body": self.body,
        }


class Record:
    """The newest requests, at most so many and so many bytes of them; `dropped` counts the rest."""

    def __init__(self, limit: int = 2000, limit_bytes: int = 64 * 2**20) -> None:
        self._kept: deque[Request] = deque()
        self._limit, self._limit_bytes = limit, limit_bytes
        self._bytes = 0
        self.dropped = 0
        self.count = 0

    def add(self, request: Request) -> None:
        self._kept.append(request)
        self._bytes += request.size
        self.count += 1
        while len(self._kept) > self._limit or self._is_too_large():
            self._bytes -= self._kept.popleft().size
            self.dropped += 1

    def _is_too_large(self) -> bool:
        return self._bytes > self._limit_bytes and len(self._kept) > 1

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)


class Attempts:
    """How often each step was asked for; the longest unasked are forgotten first."""

    def __init__(self, limit: int = 10_000) -> None:
        self._counts: OrderedDict[object, int] = OrderedDict()
        self._limit = limit

    def next(self, step: object) -> int:
        """How many attempts there were before this one."""
        before = self._counts.pop(step, 0)
        self._counts[step] = before + 1
        if len(self._counts) > self._limit:
            self._counts.popitem(last=False)
        return before
