"""A route to a model API: a plain name inside, the key outside, and a meter."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paddock.domain.broker.binding import host_rule, plain_place
from paddock.domain.broker.metered import Cost, cost_of, model_in
from paddock.domain.broker.models import Dialect, Tokens, host_of
from paddock.domain.egress import names, paths
from paddock.domain.egress.deciding import Decision, judge_connection
from paddock.domain.egress.rule import Rule
from paddock.gateway.bounds import DEFAULT_OUTPUT
from paddock.gateway.brokering import Brokering, Lack
from paddock.gateway.injecting import Head, guarded, whole
from paddock.gateway.journal import ModelKey
from paddock.gateway.metering import Meter
from paddock.gateway.paying import Payment, Unmetered
from paddock.gateway.protocol import Credential
from paddock.gateway.relay import Relay
from paddock.gateway.requests import Request
from paddock.gateway.target import Target
from paddock.gateway.usage import Shown

if TYPE_CHECKING:
    from paddock.gateway.fence import Fence

_OK = 200
_INSIDE_PORT = 80
_BYTES_PER_TOKEN = 4
_KEYS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")


class Routing(Brokering):
    """Of one connection, which is to one route."""

    def __init__(self, fence: "Fence", credential: Credential) -> None:
        super().__init__(fence, _target(credential))
        self.is_plain = credential.plain
        self.dialect = self._speaks = Dialect(credential.dialect)
        self.inside = host_of(credential.route)
        self._route = credential.route
        self._meter: Meter | None = None
        self._decision = Decision(allowed=False)
        self._asked: list[Payment] = []
        """Those that are not answered yet."""
        self._answered: Payment | None = None
        """The one whose answer is under way, and counted."""
        self.answers.watch, self.answers.may_splice = self._watch, False

    @property
    def authority(self) -> str:
        return self._target.authority if self.is_plain else super().authority

    @property
    def upstream(self) -> Target:
        return self._target

    def decision(self, rules: Sequence[Rule]) -> Decision:
        """A route is a way of its own; only what is denied by name is closed to it, too."""
        target = self._target
        found = judge_connection(rules, target.name, target.address, target.port).whole
        if found.rule is not None and not found.allowed:
            return found
        text = f"model route {self._route}"
        return Decision(allowed=True, rule=Rule(allows=True, host=target.host, text=text))

    def objection(self, request: Request, decision: Decision) -> str:
        """Why a request goes nowhere; empty when it may go on."""
        if not decision.allowed:
            return f"denied by the rule {decision.by}"
        if request.host != self.inside or request.port not in (None, _INSIDE_PORT):
            return f"the request is for {request.host or 'no host'}, on a route to {self._route}"
        if request.upgrades:
            return "what is said over a WebSocket cannot be counted; a model route is for requests"
        if paths.canonical(request.path) is None:
            return "servers read its path in different ways, and the key is for one of them"
        return ""

    def judged(self, decision: Decision, rules: Sequence[Rule]) -> Decision:
        return self.decision(rules)

    def rewritten(self, head: Head, decision: Decision) -> Head:
        credential = self._fence.desk.route(self.inside)
        if credential is None:
            raise Lack(_gone(self._route))
        credential = whole(credential)
        made = guarded(_keyed(head, credential, self._speaks))
        path = paths.canonical(made.path.decode("latin-1")) or ""
        cost = cost_of(self._speaks, head.method, path)
        payment = Payment(self._fence.desk.ledger, credential, made, cost, path=path)
        try:
            _check(payment)
        except Lack as lack:
            self._note(credential, decision, lack.why)
            raise
        self._note(credential, decision)
        self._decision = decision
        self._use((credential,))
        self._asked.append(payment)
        self.answers.expect(head.method)
        return made.without(b"expect") if payment.is_gathered else made

    def note_lack(self, lack: Lack) -> None:
        """What was to be sent is not, for a reason that only all of the request has told."""
        self._note(lack.credential, self._decision, lack.why)

    def to_gather(self) -> Payment | None:
        """The request whose head was read last, if the rest of it is to be read, too."""
        payment = self._asked[-1]
        return payment if payment.is_gathered else None

    @property
    def is_owed(self) -> bool:
        """What an answer costs against a limit is not known yet: it is read to its end, whether or
        not anybody is there to get it."""
        asked = (*self._asked, *([self._answered] if self._answered else []))
        return any(e.is_limited and e.is_sent and e.cost is Cost.COUNTED for e in asked)

    def is_through(self, relay: Relay) -> bool:
        return super().is_through(relay) or (relay.is_over and not self.is_owed)

    def _watch(self, status: int, found: Mapping[bytes, list[bytes]]) -> Shown | None:
        payment = self._asked.pop(0)
        if status != _OK or payment.cost is Cost.FREE:
            payment.release()
            return None
        streamed = b"text/event-stream" in b",".join(found.get(b"content-type", []))

        def told(said: str, tokens: Tokens, guessed: bool) -> None:
            self._answered = None
            if guessed and payment.cost is Cost.UNKNOWN:
                payment.release()
            else:
                self._charge(payment, said, tokens, guessed=guessed)

        self._answered = payment
        self._meter = Meter(
            self._speaks,
            told,
            streamed=streamed,
            asked=payment.head.size.bytes,
            most=_most(payment),
            strict=payment.is_limited,
        )
        may_hide = streamed and b"content-length" not in found
        return Shown(self._meter, hides=payment.asks_usage and may_hide)

    def _charge(self, payment: Payment, said: str, tokens: Tokens, *, guessed: bool) -> None:
        fence, credential = self._fence, payment.credential
        model = said or payment.bound.model or model_in(payment.path)
        cost = fence.desk.ledger.cost(model, tokens)
        payment.settle(cost)
        key = ModelKey(
            sandbox=fence.id,
            account=credential.account,
            route=credential.route,
            model=model[:200],
            guessed=guessed,
            assumed=not fence.desk.ledger.prices.knows(model),
            shown=fence.shown,
        )
        fence.journal.spend(key, tokens, cost)

    def finished(self, *, reached: bool) -> None:
        """An answer that was cut short has cost something, and so has one that never came."""
        if self._meter is not None:
            self._meter.cut()
        for payment in self._asked:
            if reached and payment.is_sent and payment.cost is Cost.COUNTED:
                self._charge(payment, "", _most(payment), guessed=True)
            else:
                payment.release()
        self._asked.clear()


def _target(credential: Credential) -> Target:
    if not credential.plain:
        rule = host_rule(credential.hosts[0])
        return Target(rule.host, "", rule.ports[0][0])
    host, port = plain_place(credential.hosts[0])
    return Target(host, "", port) if names.normal(host) else Target("", host, port)


def _check(payment: Payment) -> None:
    """Lack where nothing is sent, whatever follows the head."""
    credential = payment.credential
    expired = credential.expires_at is not None and credential.expires_at <= time.time()
    if not credential.value or expired:
        raise Lack(credential)
    payment.check()
    if payment.cost is Cost.UNKNOWN and credential.limit is not None:
        path = payment.head.path.decode("latin-1").partition("?")[0][:200]
        raise Unmetered(credential, f"what {payment.head.method} {path} costs is not counted")


def _most(payment: Payment) -> Tokens:
    if payment.is_gathered:
        return payment.bound.tokens
    return Tokens(payment.head.size.bytes // _BYTES_PER_TOKEN, DEFAULT_OUTPUT)


def _keyed(head: Head, credential: Credential, dialect: Dialect) -> Head:
    """With the real key, and without whatever key the program believes in."""
    path = credential.base_path.encode() + head.path
    if dialect is Dialect.GEMINI:
        before, mark, query = path.partition(b"?")
        kept = [part for part in query.split(b"&") if not part.startswith(b"key=")]
        path = before + (mark if kept != [b""] and kept else b"") + b"&".join(kept)
    bare = replace(head, path=path).without(*_KEYS)
    value = credential.value.encode()
    if dialect is Dialect.ANTHROPIC:
        return bare.plus(b"X-Api-Key", value)
    if dialect is Dialect.GEMINI:
        return bare.plus(b"X-Goog-Api-Key", value)
    return bare.plus(b"Authorization", b"Bearer " + value)


def _gone(route: str) -> Credential:
    return Credential(
        secret="",
        placeholder="",
        hosts=[],
        way="model",
        lacks=f"the route {route} was taken back",
        remedy="whoever administers the team's secrets can bind one: `paddock secrets bind "
        f"NAME --as model --route {route}`",
    )
