"""What models cost: by whose account, how much so far, and at which prices."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from paddock.domain.audit import AuditEntry
from paddock.domain.broker.models import Price, Prices, Tokens
from paddock.domain.budget import Spent
from paddock.domain.errors import Forbidden, InvalidRequest
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import is_id
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.sandbox import SandboxState
from paddock.domain.task import TASK_PREFIX
from paddock.domain.team import Principal, Scope
from paddock.ports.clock import Clock
from paddock.ports.egress import FlowSource, ModelUse
from paddock.ports.store import ANY_TEAM, Page, SandboxFilter, Store, Transaction
from paddock.services.spend_days import note_spent

_USAGE = "model-usage."
_PRICES = "model-prices"
_MOST_PRICES = 1000
_MOST_MODELS = 300
"""Models of one account on one route. Programs choose the names, so their number is limited."""
OTHERS = "(others)"
TASK = "task"
"""The label by which people find a task's sandboxes. Who pays is not told by it."""


@dataclass(frozen=True, slots=True)
class Used:
    """What an account took of one model on one route."""

    route: str
    model: str
    requests: int
    tokens: Tokens
    cost_usd: float
    guessed: bool
    """The API did not say all of it."""
    assumed: bool = False
    """Some of it was of a model without a price, and counted as if it were dear."""


def account_of(sandbox: SandboxRecord) -> str:
    """That of the task that it was made or taken for, otherwise its own."""
    whose = f"task {sandbox.task}" if sandbox.task else f"sandbox {sandbox.id}"
    return f"{sandbox.team_id}/{whose}"


class Spending:
    """Sums are kept with every batch that gateways tell of, so none is counted twice."""

    def __init__(
        self, store: Store, clock: Clock, gateways: Mapping[str, FlowSource], shipped: Prices
    ) -> None:
        self._store = store
        self._clock = clock
        self._gateways = gateways
        self._shipped = shipped

    async def used(self, account: str) -> Sequence[Used]:
        kept = await self._store.read(lambda tx: tx.values.all(f"{_USAGE}{account}|"))
        found = (_read(dict(value)) for value in kept.values())  # type: ignore[call-overload]
        return sorted(found, key=lambda each: (each.route, each.model))

    async def spent(self, account: str) -> float:
        return sum(each.cost_usd for each in await self.used(account))

    async def forget_gone(self) -> None:
        """Accounts of sandboxes and tasks that nobody remembers."""

        def sweep(tx: Transaction) -> None:
            for key in tx.values.all(_USAGE):
                whose = key.removeprefix(_USAGE).partition("|")[0].partition("/")[2]
                kind, _, name = whose.partition(" ")
                team_id = key.removeprefix(_USAGE).partition("/")[0]
                if not _is_known(tx, team_id, kind, name):
                    tx.values.remove(key)

        await self._store.write(sweep)

    async def prices(self) -> Prices:
        kept = await self._store.read(lambda tx: tx.values.get(_PRICES))
        return _prices(kept) if isinstance(kept, dict) else self._shipped

    async def table(self, principal: Principal) -> Prices:
        """What is counted with."""
        principal.require(Scope.SANDBOXES_READ)
        return await self.prices()

    async def put_prices(self, principal: Principal, prices: Prices | None) -> Prices:
        """For all teams, from the next answer on; None brings back those of Paddock."""
        principal.require(Scope.SETTINGS_WRITE)
        if not principal.operator:
            raise Forbidden(
                "prices are the whole installation's, so only its operators set them",
                remediation="ask an operator",
            )
        if prices is not None:
            _check(prices)
        now = self._clock.wall()
        detail = {"models": sorted(prices.table), "as_of": prices.as_of} if prices else {}
        entry = AuditEntry(
            principal.team_id, principal.actor, "models.prices", "prices", now, detail
        )

        def write(tx: Transaction) -> None:
            if prices is None:
                tx.values.remove(_PRICES)
            else:
                tx.values.put(_PRICES, asdict(prices))
            tx.audit.append([entry])

        await self._store.write(write)
        await self.tell()
        return await self.prices()

    async def tell(self) -> None:
        """Gateways count with the prices of now."""
        prices = await self.prices()
        for gateway in self._gateways.values():
            await gateway.set_prices(prices)


def note_use(tx: Transaction, sandbox: SandboxRecord, use: ModelUse) -> Event:
    """Add a use to the account's sums, and return the event for it."""
    route = f"{_USAGE}{use.account}|{use.route}|"
    key, before = route + use.model, tx.values.get(route + use.model)
    if before is None and tx.values.count(route) >= _MOST_MODELS:
        use = replace(use, model=OTHERS)
        key, before = route + OTHERS, tx.values.get(route + OTHERS)
    tokens = Tokens(use.input, use.output, use.cache_read, use.cache_write, use.reasoning)
    now = Used(use.route, use.model, use.requests, tokens, use.cost, use.guessed, use.assumed)
    if isinstance(before, dict):
        old = _read(before)
        now = Used(
            use.route,
            use.model,
            old.requests + use.requests,
            old.tokens + tokens,
            old.cost_usd + use.cost,
            old.guessed or use.guessed,
            old.assumed or use.assumed,
        )
    tx.values.put(key, asdict(now))
    note_spent(tx, sandbox.team_id, use.last_at, use.cost)
    told: dict[str, object] = {
        "name": sandbox.name,
        "route": use.route,
        "model": use.model,
        "requests": use.requests,
        **{f"{name}_tokens": count for name, count in asdict(tokens).items()},
        "cost_usd": round(use.cost, 6),
        "guessed": use.guessed,
        "assumed_price": use.assumed,
        **app_in(sandbox),
    }
    whose, _, task = use.account.partition("/")[2].partition(" ")
    if whose == "task":
        told["task"] = task
        _charge(tx, sandbox.team_id, task, tokens=tokens, cost=use.cost)
    return Event(sandbox.team_id, EventKind.MODEL_USED, sandbox.id, use.last_at, told)


def forget_task(tx: Transaction, team_id: str, task_id: str) -> None:
    """What was counted for it."""
    for key in tx.values.all(f"{_USAGE}{team_id}/task {task_id}|"):
        tx.values.remove(key)


def _is_known(tx: Transaction, team_id: str, kind: str, name: str) -> bool:
    if kind == "sandbox":
        return tx.sandboxes.get(ANY_TEAM, name) is not None
    if tx.tasks.get(team_id, name) is not None:
        return True
    # A label is anybody's word: it need not name one of our tasks.
    labelled = SandboxFilter(labels={TASK: name}, states=frozenset(SandboxState))
    return not is_id(name, TASK_PREFIX) and bool(tx.sandboxes.list(team_id, labelled, Page(1)))


def _charge(tx: Transaction, team_id: str, task_id: str, *, tokens: Tokens, cost: float) -> None:
    """To the task whose account it went by: counted outside, and so the same for every agent."""
    if (task := tx.tasks.get(team_id, task_id)) is not None:
        read = tokens.input + tokens.cache_read + tokens.cache_write
        thought = tokens.reasoning
        more = Spent(read, tokens.cache_read, tokens.output, cost, reasoning_tokens=thought)
        tx.tasks.replace(replace(task, metered=task.metered.plus(more)))


def _read(kept: Mapping[str, object]) -> Used:
    fields = dict(kept)
    fields["tokens"] = Tokens(**fields["tokens"])  # type: ignore[arg-type]
    return Used(**fields)  # type: ignore[arg-type]


def _prices(kept: Mapping[str, Any]) -> Prices:
    table = {model: Price(**each) for model, each in kept["table"].items()}
    return Prices(table, kept["as_of"], kept["note"])


def _check(prices: Prices) -> None:
    if len(prices.table) > _MOST_PRICES or not all(prices.table):
        raise InvalidRequest(
            f"a table of {len(prices.table)} prices is not usable",
            remediation=f"name each model; at most {_MOST_PRICES}",
        )
    for model, price in prices.table.items():
        if min(asdict(price).values()) < 0:
            raise InvalidRequest(
                f"the price of {model[:80]} is negative", remediation="give dollars per million"
            )
