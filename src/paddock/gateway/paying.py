"""One request along a model route: what it may cost is set aside before it is sent."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from paddock.domain.broker.metered import Cost, has_output, is_chat, model_in
from paddock.domain.broker.models import Dialect
from paddock.gateway.bounds import Bound, Doubled, Illegible, bound_of, check_single
from paddock.gateway.brokering import Lack
from paddock.gateway.elsewhere import WINDOW, is_elsewhere
from paddock.gateway.injecting import Head
from paddock.gateway.ledger import Ledger, Reserved
from paddock.gateway.protocol import Credential
from paddock.gateway.room import MOST_IN_ALL, MOST_OF_REQUEST, MOST_OF_SANDBOX, Full
from paddock.gateway.usage import with_usage

_MOST_UNLIMITED = 1 << 20
_SLOW, _TOO_LARGE, _TOO_MANY, _BAD = 408, 413, 429, 400


class Overspent(Lack):
    """The account has no money left."""

    def __init__(self, credential: Credential, spent: float) -> None:
        super().__init__(credential)
        self.why = (
            f"the spend limit of {credential.limit:.2f} USD for {_whose(credential)} is reached: "
            f"{spent:.4f} USD are spent"
        )
        self.code = "spend_limit_reached"
        self.remedy = _raising(credential)


class Occupied(Lack):
    """What is left is set aside for others that are under way."""

    def __init__(self, credential: Credential, ledger: Ledger, most: float) -> None:
        super().__init__(credential)
        account = credential.account
        self.why = (
            f"the spend limit of {credential.limit:.2f} USD for {_whose(credential)} leaves no room"
            f" for this request now: {ledger.spent(account):.4f} USD are spent, "
            f"{ledger.reserved(account):.4f} USD are set aside for requests under way, and this "
            f"one may cost {most:.4f} USD"
        )
        self.code = "spend_limit_busy"
        self.status = _TOO_MANY
        self.remedy = (
            "try again when others are answered, or ask for less (`max_tokens`); "
            f"{_raising(credential)}"
        )


class Crowded(Lack):
    """Requests that are not sent yet take too much memory."""

    def __init__(self, credential: Credential, full: Full) -> None:
        super().__init__(credential)
        self.status = _TOO_MANY
        if full is Full.SANDBOX:
            self.why = (
                f"requests of {MOST_OF_SANDBOX >> 20} MiB from this sandbox to models are read or "
                "wait to be sent, and no more are read beside them"
            )
            self.code = "sandbox_full"
            self.remedy = "try again once some of them are sent, or send fewer at a time"
        else:
            self.why = (
                "requests of other sandboxes to models leave no room for this one now: of "
                f"{MOST_IN_ALL >> 20} MiB nobody gets more than a part of what is left"
            )
            self.code = "gateway_full"
            self.remedy = "try again in a moment"


class Slow(Lack):
    """It was waited for, and did not come to its end."""

    def __init__(self, credential: Credential, came: int, within: str) -> None:
        super().__init__(credential)
        self.why = (
            f"the request was not read to its end: {came} bytes of its body have come, and {within}"
        )
        self.code = "request_timeout"
        self.status = _SLOW
        self.remedy = "send it again, all of it at once"


class Unmetered(Lack):
    """It may cost something that nobody here would count."""

    def __init__(self, credential: Credential, why: str, *, status: int = 403) -> None:
        super().__init__(credential)
        self.why = f"{why}, and the route {credential.route} has a spend limit"
        self.code = "spend_not_counted"
        self.status = status
        self.remedy = (
            "use what is counted (messages, chat, responses, embeddings, generateContent), or ask "
            "whoever administers the team's secrets for a route without a limit"
        )


def _whose(credential: Credential) -> str:
    return credential.account.partition("/")[2]


def _raising(credential: Credential) -> str:
    return (
        "whoever administers the team's secrets can raise it: `paddock secrets bind "
        f"{credential.secret} --as model --route {credential.route} --spend-limit …`"
    )


class Payment:
    """From the head of a request to the end of its answer."""

    def __init__(
        self, ledger: Ledger, credential: Credential, head: Head, cost: Cost, *, path: str = ""
    ) -> None:
        """`path` is that of the head, in normal form and without its query."""
        self.credential = credential
        self.head = head
        self.cost = cost
        self.path = path
        self.bound = Bound()
        self.asks_usage = False
        """In the client's stead, who does not expect it."""
        self._ledger = ledger
        is_small = 0 < head.size.bytes <= _MOST_UNLIMITED
        self.is_gathered = cost is Cost.COUNTED and (credential.limit is not None or is_small)
        """All of it is read before any of it is sent."""
        self.is_sent = not self.is_gathered
        self._reserved: Reserved | None = None
        self._give_up: Callable[[], None] | None = None

    @property
    def _most(self) -> float:
        return self.bound.cost(self._ledger.prices.of(self.bound.model))

    @property
    def is_limited(self) -> bool:
        return self.credential.limit is not None

    def read(self, body: bytes) -> bytes:
        """What it may cost, and what is sent. Unmetered where a limit would not hold."""
        if not self.is_limited:
            with suppress(Illegible):
                self.bound = self._bound(body)
            return body
        packed = b",".join(self.head.values(b"content-encoding")).strip().lower()
        if packed not in (b"", b"identity"):
            raise Unmetered(self.credential, "a packed request cannot be read", status=_BAD)
        try:
            return self._read_limited(body)
        except Doubled as error:
            why = f"{error}, and which of them counts is not sure: name each once"
            raise Unmetered(self.credential, why, status=_BAD) from error
        except Illegible as error:
            why = f"the request is no JSON that can be read ({error})"
            raise Unmetered(self.credential, why, status=_BAD) from error

    def _bound(self, body: bytes) -> Bound:
        return bound_of(body, named=model_in(self.path), outputs=has_output(self.path))

    def _read_limited(self, body: bytes) -> bytes:
        self.bound = self._bound(body)
        check_single(body)
        if self.bound.in_background:
            raise Unmetered(self.credential, "what answers in the background is counted by nobody")
        dialect = Dialect(self.credential.dialect)
        if is_elsewhere(dialect, body):
            tokens = self.bound.tokens
            most = replace(tokens, input=max(tokens.input, WINDOW))
            self.bound = replace(self.bound, tokens=most)
        asking = with_usage(body) if is_chat(dialect, self.path) else None
        self.asks_usage = asking is not None
        return body if asking is None else asking

    def reserve(self) -> bool:
        """Whether it may be sent now. Overspent when nothing is left at all."""
        self.check()
        credential = self.credential
        self._reserved = self._ledger.reserve(credential.account, credential.limit, self._most)
        return self._reserved is not None

    def check(self) -> None:
        spent, limit = self._ledger.spent(self.credential.account), self.credential.limit
        if limit is not None and spent >= limit:
            raise Overspent(self.credential, spent)

    def wait(self, told: Callable[[Lack | None], None]) -> None:
        """`told` hears once that it may be sent, or why not."""
        credential = self.credential

        def settled(reserved: Reserved | None) -> None:
            self._give_up, self._reserved = None, reserved
            spent = self._ledger.spent(credential.account)
            told(Overspent(credential, spent) if reserved is None else None)

        self._give_up = self._ledger.wait(credential.account, credential.limit, self._most, settled)

    def occupied(self) -> Lack:
        """It has waited for long enough."""
        lack = Occupied(self.credential, self._ledger, self._most)
        self.release()
        return lack

    def too_large(self) -> Lack:
        why = f"a request of more than {MOST_OF_REQUEST >> 20} MiB is not read"
        return Unmetered(self.credential, why, status=_TOO_LARGE)

    def pass_on(self) -> None:
        """It is sent as it comes, without a look into it: no limit asks for one."""
        self.is_gathered, self.is_sent = False, True

    def settle(self, cost: float) -> None:
        """What it did cost. Of what was never set aside there is nothing to give back."""
        if self._reserved is None:
            self._reserved = Reserved(self.credential.account, 0.0)
        reserved, self._reserved = self._reserved, None
        self._ledger.settle(reserved, cost)

    def release(self) -> None:
        """It has cost nothing, or will not be sent."""
        if self._give_up is not None:
            self._give_up()
            self._give_up = None
        if self._reserved is not None:
            reserved, self._reserved = self._reserved, None
            self._ledger.settle(reserved, 0.0)
