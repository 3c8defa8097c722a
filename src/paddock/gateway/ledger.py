"""What models have cost, by whose account it goes, and what is set aside for those that answer."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddock.domain.broker.models import Prices, Tokens

_MOST_PAST = 10_000
"""Accounts that no sandbox has any more: whoever has one next tells what was spent."""


@dataclass(eq=False, slots=True)
class Reserved:
    """What one request may cost, until it is known what it did cost."""

    account: str
    most: float


@dataclass(eq=False, slots=True)
class _Waiter:
    limit: float | None
    most: float
    told: Callable[[Reserved | None], None]


class Ledger:
    """Of all sandboxes that the gateway serves: several may share an account."""

    def __init__(self) -> None:
        self.prices = Prices()
        self._spent: dict[str, float] = {}
        self._past: OrderedDict[str, float] = OrderedDict()
        self._held: Counter[str] = Counter()
        """By how many sandboxes: what they have spent is never forgotten."""
        self._reserved: dict[str, set[Reserved]] = {}
        self._waiting: dict[str, list[_Waiter]] = {}

    def spent(self, account: str) -> float:
        return self._spent.get(account, 0.0) or self._past.get(account, 0.0)

    def hold(self, accounts: Iterable[str]) -> None:
        """A sandbox has them, until it lets go of them."""
        for account in accounts:
            self._held[account] += 1
            self._spent[account] = max(self.spent(account), self._past.pop(account, 0.0))

    def let_go(self, accounts: Iterable[str]) -> None:
        for account in accounts:
            self._held[account] -= 1
            if self._held[account] <= 0:
                del self._held[account]
                self._put(account, self._spent.pop(account, 0.0))

    def reserved(self, account: str) -> float:
        """By requests that are under way."""
        return sum(each.most for each in self._reserved.get(account, ()))

    def know(self, account: str, spent: float) -> None:
        """What went by it before, or through others; what is known here may be newer."""
        self._put(account, max(spent, self.spent(account)))

    def reserve(self, account: str, limit: float | None, most: float) -> Reserved | None:
        """None where it does not fit beside what others have set aside.

        One that is alone is let go by as long as anything is left: what it costs beyond that is at
        most what the account is overspent by. Nobody overtakes who waits already.
        """
        if self._waiting.get(account) or not self._fits(account, limit, most):
            return None
        return self._set_aside(account, most)

    def wait(
        self,
        account: str,
        limit: float | None,
        most: float,
        told: Callable[[Reserved | None], None],
    ) -> Callable[[], None]:
        """`told` hears of it once it fits, or None once all is spent; to be given up with."""
        waiter = _Waiter(limit, most, told)
        self._waiting.setdefault(account, []).append(waiter)

        def give_up() -> None:
            if waiter in self._waiting.get(account, ()):
                self._waiting[account].remove(waiter)
                self._wake(account)

        return give_up

    def settle(self, reserved: Reserved, cost: float) -> None:
        """Once: what it did cost, or nothing."""
        held = self._reserved.get(reserved.account, set())
        held.discard(reserved)
        if not held:
            self._reserved.pop(reserved.account, None)
        if cost:
            self._put(reserved.account, self.spent(reserved.account) + cost)
        self._wake(reserved.account)

    def cost(self, model: str, tokens: Tokens) -> float:
        return self.prices.of(model).cost(tokens)

    def charge(self, account: str, model: str, tokens: Tokens) -> float:
        cost = self.cost(model, tokens)
        self._put(account, self.spent(account) + cost)
        return cost

    def _fits(self, account: str, limit: float | None, most: float) -> bool:
        if limit is None:
            return True
        spent = self.spent(account)
        is_alone = account not in self._reserved
        return spent < limit and (is_alone or spent + self.reserved(account) + most <= limit)

    def _set_aside(self, account: str, most: float) -> Reserved:
        made = Reserved(account, most)
        self._reserved.setdefault(account, set()).add(made)
        return made

    def _wake(self, account: str) -> None:
        """In their order, as far as they fit: small ones do not overtake a large one for ever."""
        waiting = self._waiting.get(account, [])
        while waiting:
            first = waiting[0]
            is_spent = first.limit is not None and self.spent(account) >= first.limit
            if not is_spent and not self._fits(account, first.limit, first.most):
                return
            waiting.remove(first)
            first.told(None if is_spent else self._set_aside(account, first.most))
        if not self._waiting.get(account):
            self._waiting.pop(account, None)

    def _put(self, account: str, spent: float) -> None:
        if account in self._held:
            self._spent[account] = spent
            return
        self._past[account] = spent
        self._past.move_to_end(account)
        if len(self._past) > _MOST_PAST:
            self._past.popitem(last=False)
