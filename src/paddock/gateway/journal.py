"""What was connected to and what was refused, added up until somebody takes it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from paddock.domain.broker.models import Tokens
from paddock.gateway.protocol import CredentialUse, Flow, Flows, ModelUse

_MOST_PER_SANDBOX = 500
_MOST = 20_000
OTHERS = "(others)"
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


class Journal:
    """Bounded: a program that connects to ten thousand names fills no memory and no log."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._sums: dict[Key, _Sum] = {}
        self._of_sandbox: dict[str, int] = {}
        self._uses: dict[UseKey, _Sum] = {}
        self._models: dict[ModelKey, _Sum] = {}
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

    def use(self, key: UseKey) -> None:
        """A credential was used once more."""
        if len(self._uses) >= _MOST and key not in self._uses:
            self._dropped += 1
            return
        self._count(self._uses.setdefault(key, _Sum(self._now(), 0.0)))

    def spend(self, key: ModelKey, tokens: Tokens, cost: float) -> None:
        """A model has answered once more. What it cost is never left out."""
        if len(self._models) >= _MOST:
            key = replace(key, model=OTHERS)
        found = self._models.setdefault(key, _Sum(self._now(), 0.0))
        self._count(found)
        found.tokens += tokens
        found.cost += cost

    def _count(self, found: _Sum) -> None:
        found.last_at = self._now()
        found.connections += 1

    def _begun(self, key: Key, now: float) -> _Sum | None:
        count = self._of_sandbox.get(key.sandbox, 0)
        if count >= _MOST_PER_SANDBOX and key.host != OTHERS:
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
        models, room = _cut(self._models, _model, LARGEST_BATCH)
        uses, room = _cut(self._uses, _use, room)
        flows, room = _cut(self._sums, _flow, room)
        for flow in flows:
            self._end(flow.sandbox)
        if not (flows or uses or models):
            self._batch = None
            return Flows(self._number, [])
        self._number += 1
        more = bool(self._sums or self._uses or self._models)
        # It is told with flows, and waits for some: nothing else on record has a place for it.
        dropped = self._dropped if flows else 0
        self._dropped -= dropped
        self._batch = Flows(self._number, flows, dropped, uses, models, more)
        return self._batch

    def _end(self, sandbox: str) -> None:
        self._of_sandbox[sandbox] -= 1
        if not self._of_sandbox[sandbox]:
            del self._of_sandbox[sandbox]


def _cut(
    sums: dict[_Key, _Sum], told: Callable[[_Key, _Sum], _Told], room: int
) -> tuple[list[_Told], int]:
    """The oldest for which there is room, which are taken out, and the room that is left."""
    found: dict[_Key, _Told] = {}
    for key, each in sums.items():
        if room <= 0:
            break
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
