"""What was connected to and what was refused, added up until somebody takes it."""

import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from paddock.domain.broker.models import Tokens
from paddock.gateway.protocol import CredentialUse, Flow, Flows, ModelUse

_MOST_PER_SANDBOX = 500
_MOST = 20_000
BURST, PER_SECOND = 500.0, 5.0
"""Rate limit of new entries of one sandbox and kind. The surplus is recorded as `(others)`."""
OTHERS = "(others)"
OTHERS_EVERY_S = 10.0
"""How often the `(others)` connections of one sandbox are reported."""
LARGEST_BATCH = 128 << 10
"""In bytes, about: what is stored at once, and sent without being taken apart."""

_Key = TypeVar("_Key")
_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class Key:
    """Connections with the same are told as one."""

    sandbox: str
    host: str
    port: int
    allowed: bool
    rule: str = ""
    source: str = ""
    why: str = ""
    shown: str = ""
    """What people call the sandbox."""


@dataclass(frozen=True, slots=True)
class UseKey:
    """Uses of a credential with the same are told as one."""

    sandbox: str
    secret: str
    host: str
    port: int
    way: str
    rule: str = ""
    lacks: str = ""
    shown: str = ""


@dataclass(frozen=True, slots=True)
class ModelKey:
    """Answers with the same are told as one."""

    sandbox: str
    account: str
    route: str
    model: str
    guessed: bool = False
    assumed: bool = False
    shown: str = ""


@dataclass(slots=True)
class _Sum:
    first_at: float
    last_at: float
    connections: int = 0
    up: int = 0
    down: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    cost: float = 0.0


class _Pace:
    """A token bucket for each sandbox.

    Each entry becomes a row in the control plane's database. The rate is limited here, where the
    surplus can still be added up.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, sandbox: str, now: float) -> bool:
        left, at = self._buckets.get(sandbox, (BURST, now))
        left = min(BURST, left + max(0.0, now - at) * PER_SECOND)
        self._buckets[sandbox] = (left - 1 if left >= 1 else left, now)
        return left >= 1

    def forget_full(self, now: float) -> None:
        """Forget buckets that are full again: they equal new ones."""
        full_after = BURST / PER_SECOND
        self._buckets = {k: v for k, v in self._buckets.items() if now - v[1] < full_after}


class Journal:
    """Bounded in memory and in rate.

    A program that connects to ten thousand names fills neither memory nor the database. Each kind
    of entry has its own rate limit, so that many entries of one kind do not hide another.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._sums: dict[Key, _Sum] = {}
        self._of_sandbox: dict[str, int] = {}
        self._uses: dict[UseKey, _Sum] = {}
        self._models: dict[ModelKey, _Sum] = {}
        self._flow_pace, self._use_pace, self._model_pace = _Pace(), _Pace(), _Pace()
        self._others_at: dict[str, float] = {}
        self._dropped = 0
        self._batch: Flows | None = None
        self._number = 0

    @property
    def is_told(self) -> bool:
        """All of it was, and somebody has said that it is stored."""
        return not (self._sums or self._uses or self._models or self._batch)

    def add(self, key: Key, *, connections: int = 0, up: int = 0, down: int = 0) -> None:
        now = self._now()
        found = self._sums.get(key) or self._begun(key, now)
        if found is None:
            self._dropped += connections
            return
        found.last_at = now
        found.connections += connections
        found.up += up
        found.down += down

    def take_back(self, key: Key) -> None:
        """A connection that was told of too early, unless somebody has heard of it meanwhile."""
        found = self._sums.get(key)
        if found is None or found.connections < 1:
            return
        found.connections -= 1
        if not found.connections and not found.up and not found.down:
            del self._sums[key]
            self._end(key.sandbox)

    def explain(self, key: Key, why: str) -> Key:
        """Replace a recorded connection by one with the reason of its failure."""
        self.take_back(key)
        restated = replace(key, why=why)
        self.add(restated, connections=1)
        return restated

    def use(self, key: UseKey) -> None:
        """A credential was used once more."""
        now = self._now()
        if key not in self._uses and not self._use_pace.take(key.sandbox, now):
            key = replace(key, host=OTHERS, port=0, rule="")
        if len(self._uses) >= _MOST and key not in self._uses:
            self._dropped += 1
            return
        self._count(self._uses.setdefault(key, _Sum(now, now)), now)

    def spend(self, key: ModelKey, tokens: Tokens, cost: float) -> None:
        """A model has answered once more. What it cost is never left out."""
        now = self._now()
        is_new = key not in self._models
        if is_new and (len(self._models) >= _MOST or not self._model_pace.take(key.sandbox, now)):
            key = replace(key, model=OTHERS)
        found = self._models.setdefault(key, _Sum(now, now))
        self._count(found, now)
        found.tokens += tokens
        found.cost += cost

    def _count(self, found: _Sum, now: float) -> None:
        found.last_at = now
        found.connections += 1

    def _begun(self, key: Key, now: float) -> _Sum | None:
        count = self._of_sandbox.get(key.sandbox, 0)
        is_full = count >= _MOST_PER_SANDBOX or not self._flow_pace.take(key.sandbox, now)
        if is_full and key.host != OTHERS:
            key = Key(key.sandbox, OTHERS, 0, key.allowed, shown=key.shown)
            if key in self._sums:
                return self._sums[key]
        elif len(self._sums) >= _MOST:
            return None
        self._of_sandbox[key.sandbox] = count + 1
        self._sums[key] = made = _Sum(now, now)
        return made

    def drain(self, ack: int) -> Flows:
        """The batch after `ack`; the same one until it is acknowledged.

        What it has no room for is in the next, and goes on adding up until then.
        """
        if self._batch is not None and self._batch.number > ack:
            return self._batch
        now = self._now()
        self._forget(now)
        models, room = _cut(self._models, _model, LARGEST_BATCH)
        uses, room = _cut(self._uses, _use, room)
        held = {key for key in self._sums if key.host == OTHERS and key.sandbox in self._others_at}
        flows, room = _cut(self._sums, _flow, room, held)
        for flow in flows:
            self._end(flow.sandbox)
            if flow.host == OTHERS:
                self._others_at[flow.sandbox] = now
        if not (flows or uses or models):
            self._batch = None
            return Flows(self._number, [])
        self._number += 1
        more = len(self._sums) > len(held) or bool(self._uses or self._models)
        # It is told with flows, and waits for some: nothing else on record has a place for it.
        dropped = self._dropped if flows else 0
        self._dropped -= dropped
        self._batch = Flows(self._number, flows, dropped, uses, models, more)
        return self._batch

    def _forget(self, now: float) -> None:
        for pace in (self._flow_pace, self._use_pace, self._model_pace):
            pace.forget_full(now)
        recent = {k: at for k, at in self._others_at.items() if 0 <= now - at < OTHERS_EVERY_S}
        self._others_at = recent

    def _end(self, sandbox: str) -> None:
        self._of_sandbox[sandbox] -= 1
        if not self._of_sandbox[sandbox]:
            del self._of_sandbox[sandbox]


def _cut(
    sums: dict[_Key, _Sum],
    told: Callable[[_Key, _Sum], _Told],
    room: int,
    held: Container[_Key] = (),
) -> tuple[list[_Told], int]:
    """The oldest for which there is room, which are taken out, and the room that is left."""
    found: dict[_Key, _Told] = {}
    for key, each in sums.items():
        if room <= 0:
            break
        if key in held:
            continue
        found[key] = told(key, each)
        room -= len(msgspec.json.encode(found[key]))
    for key in found:
        del sums[key]
    return list(found.values()), room


def _flow(key: Key, each: _Sum) -> Flow:
    return Flow(
        sandbox=key.sandbox,
        host=key.host,
        port=key.port,
        allowed=key.allowed,
        rule=key.rule,
        source=key.source,
        why=key.why,
        connections=each.connections,
        bytes_up=each.up,
        bytes_down=each.down,
        first_at=each.first_at,
        last_at=each.last_at,
        shown=key.shown,
    )


def _use(key: UseKey, each: _Sum) -> CredentialUse:
    return CredentialUse(
        sandbox=key.sandbox,
        secret=key.secret,
        host=key.host,
        port=key.port,
        way=key.way,
        rule=key.rule,
        lacks=key.lacks,
        count=each.connections,
        first_at=each.first_at,
        last_at=each.last_at,
        shown=key.shown,
    )


def _model(key: ModelKey, each: _Sum) -> ModelUse:
    return ModelUse(
        sandbox=key.sandbox,
        account=key.account,
        route=key.route,
        model=key.model,
        guessed=key.guessed,
        assumed=key.assumed,
        requests=each.connections,
        input=each.tokens.input,
        output=each.tokens.output,
        cache_read=each.tokens.cache_read,
        cache_write=each.tokens.cache_write,
        reasoning=each.tokens.reasoning,
        cost=each.cost,
        first_at=each.first_at,
        last_at=each.last_at,
        shown=key.shown,
    )
