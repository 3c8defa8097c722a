"""One connection of a sandbox: aimed, recognised, judged, and passed on."""

import asyncio
import logging
from typing import TYPE_CHECKING

from paddock.domain.egress.deciding import (
    Asked,
    Decision,
    Opening,
    is_for_tls,
    judge_connection,
    judge_request,
)
from paddock.gateway import refusing
from paddock.gateway.brokering import Brokering
from paddock.gateway.client_hello import ClientHello, is_retried
from paddock.gateway.journal import Key
from paddock.gateway.outside import Closed, Unreachable
from paddock.gateway.refusing import Refusal
from paddock.gateway.relay import Relay
from paddock.gateway.requests import Denied, Malformed, Request, Requests
from paddock.gateway.sniffing import Spoken, spoken
from paddock.gateway.target import Target
from paddock.gateway.waiting import NO_RULE, NOBODY, Take, Waiting, reason

if TYPE_CHECKING:
    from paddock.gateway.fence import Fence

_log = logging.getLogger(__name__)
_IN_KIND_S = 0.5
"""How long a client that may not connect is waited for, to answer in its own protocol."""
_SWITCHING = b"HTTP/1.1 101"


class Connection(Waiting):
    """What the client sends goes to `take`, which is exchanged as more becomes known."""

    def __init__(self, fence: "Fence") -> None:
        self.fence = fence
        self.relay = Relay(self)
        self.target = Target("", "", 0)
        self.take: Take = self._hold
        self._held = bytearray()
        self._dialing: asyncio.Task[None] | None = None
        self._pinned = ""
        """The address that it is to."""
        self._request: Asked | None = None
        self._decided = NOBODY
        self._is_answered = True
        """The other side has said something since it was sent the last request."""
        self._brokering: Brokering | None = None
        """Where a secret of the sandbox is bound to the host."""
        self._trusted = False  # named by an operator: private, and over plain HTTP
        self._refusal: Refusal | None = None
        self._key: Key | None = None

    def arrived(self, transport: asyncio.BaseTransport) -> None:
        self._client = transport
        if self.fence.admit(self):
            self._begin(transport)
        else:
            self.relay.abort()

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        """Find out where to, and `aim`."""
        raise NotImplementedError

    def aim(self, target: Target) -> None:
        """From here on the rules decide."""
        self.target = target
        if self._is_led_elsewhere(target):
            return
        opening = self._opening
        if opening.is_hopeless:
            self._ask_or_refuse(opening.whole)
            return
        self.take = self._sniff
        if opening.whole.allowed and not opening.requests and not self.fence.desk.concerns(target):
            self._dial_as(opening.whole)
        if self._held and not self._waits_for_proxy():
            self._sniff(b"")

    @property
    def _opening(self) -> Opening:
        """By the rules of now: a client may say its first word long after it has connected."""
        target = self.target
        return judge_connection(self._rules, target.name, target.address, target.port)

    def _is_led_elsewhere(self, target: Target) -> bool:
        """Whether the gateway itself is meant."""
        return False

    def _intercept(self) -> None:
        """A secret of the sandbox is bound to the host: look into its TLS."""
        raise NotImplementedError

    def _sniff(self, data: bytes) -> None:
        self._held += data
        kind = spoken(bytes(self._held))
        if kind is Spoken.UNKNOWN_YET:
            return
        if kind is Spoken.HTTP:
            self._speak_http(self._unheld())
        elif (opening := self._opening).requests and not opening.whole.allowed:
            why = "only plain HTTP is allowed there, by rules about requests"
            self._refuse(why, opening.whole)
        elif kind is Spoken.TLS:
            self._hello, self.take = ClientHello(self._is_named), self._read_hello
            self._read_hello(self._unheld())
        elif kind is Spoken.SOMETHING_ELSE and is_for_tls(opening.whole.rule, self.target.port):
            self._refuse("it does not begin as TLS, HTTP or SSH, as this port requires", NOBODY)
        else:
            self._pass_on()

    def _is_named(self, name: str) -> bool:
        """A name that is connected to is the one to be asked for; by address any may be."""
        return not self.target.name or name.lower().removesuffix(".") == self.target.name

    def _read_hello(self, data: bytes) -> None:
        self._held += data
        goes_on = self._hello.feed(data)
        if goes_on is None:
            return
        if not goes_on:
            self._record(NOBODY, f"the name inside TLS is not {self.target.host}")
            self._close_with(self._hello.refusal())
        elif self._hello.is_second:
            self.take = self.relay.send
            self.relay.send(self._unheld())
        elif self.fence.desk.concerns(self.target):
            self._intercept()
        else:
            self._greet()

    def _greet(self) -> None:
        """Send only the ClientHello: the server may ask for another, whose name then counts."""
        held = self._unheld()
        self._held += held[: self._hello.size]
        self._pass_on()
        if not self._is_refused:
            self._hold_for_answer(self._take_after_hello)
            self._held += held[self._hello.size :]

    def _take_after_hello(self, answer: bytes) -> Take | None:
        is_again = is_retried(answer)
        if is_again:
            self._hello = ClientHello(self._is_named, is_second=True)
            return self._read_hello
        return None if is_again is None else self.relay.send

    def _pass_on(self) -> None:
        """Whatever comes, unread."""
        decision = self._opening.whole
        if not decision.allowed:
            self._refuse(reason(decision), decision)
            return
        self._dial_as(decision)
        self.take = self.relay.send
        if held := self._unheld():
            self.relay.send(held)

    def _speak_http(self, data: bytes, *, once: bool = False) -> None:
        self._requests = Requests(self._judge, self.target.authority, once=once)
        self.take = self._read_requests
        self._read_requests(data)

    def _judge(self, request: Request) -> None:
        target = self.target
        if target.name and (request.host or target.name) != target.name:
            why = f"the request is for {request.host}, on a connection to {target.name}"
            raise self._denied(NOBODY, why)
        if request.port not in (None, target.port):
            raise self._denied(NOBODY, f"the request is for port {request.port}")
        asked = Asked(target.name, target.address, target.port, request.method, request.path)
        decision = judge_request(self._rules, asked)
        if not decision.allowed:
            what = f"{request.method} {request.path.partition('?')[0][:200]}"
            raise self._denied(decision, f"{reason(decision)} ({what})")
        self._request, self._decided = asked, decision
        self._record(decision, "")
        if self._brokering is None:
            self._dial()

    def _denied(self, decision: Decision, why: str) -> Denied:
        self._record(decision, why)
        self._refusal = self._refusal_of(why, decision)
        return Denied(why)

    def _read_requests(self, data: bytes) -> None:
        assert self._requests is not None
        is_first = self._requests.count == 0
        try:
            output = self._requests.feed(data)
        except Denied:
            assert self._refusal is not None
            self._answer_and_close(self._refusal)
            return
        except Malformed as error:
            self._record(NOBODY, "malformed request")
            self._answer_and_close(
                self._malformed(f"this is not HTTP as it is spoken here: {error}")
            )
            return
        if output.data:
            self._is_answered = False
            self._dial()
            self.relay.send(output.data)
        if output.upgraded and not is_first:
            self._answer_and_close(self._malformed("a WebSocket needs a connection of its own"))
        elif output.upgraded:
            # What follows is passed on once the server has agreed to speak something else.
            self._hold_for_answer(self._take_after_upgrade)
            self._held += output.rest

    def _take_after_upgrade(self, answer: bytes) -> Take | None:
        if len(answer) < len(_SWITCHING):
            return None
        return self.relay.send if answer.startswith(_SWITCHING) else self._read_requests

    def ended(self) -> None:
        """Without a word that would tell where to: nobody is dialled, so nothing would come."""
        if self._dialing is None and not self._is_refused:
            self.relay.abort()

    def ended_halfway(self) -> None:
        self.relay.finish()

    def distrusted(self, why: str) -> None:
        """Only where TLS is looked into."""

    def recheck_credentials(self) -> None:
        """Only where there are any."""

    def answered(self, data: bytes) -> None:
        self._is_answered = True
        if self._brokering is not None and self._brokering.is_through(self.relay):
            self.relay.finish()
        if self._peeked is not None:
            self._look_at_answer(data)

    def _dial_as(self, decision: Decision) -> None:
        """On record from here on: also who only listens is told of, and cut off by later rules."""
        self._record(decision, "")
        self._dial()

    def _dial(self) -> None:
        """Once: whoever is first to know that it may be connected."""
        if self._dialing is None:
            self._dialing = self.fence.spawn(self._connect())

    async def _connect(self) -> None:
        try:
            transport, self._pinned = await self.fence.outside.dial(
                self._rules,
                (self.target.host, self.target.port),
                self.relay.upstream_side,
                turns=self.fence.turns,
                verified=self._brokering is not None and not self._trusted,
                trusted=self._trusted,
            )
        except Closed as error:
            self._take_back()
            self._refuse(str(error), NOBODY)
        except Unreachable as error:
            self._fail(str(error))
        except Exception:  # noqa: BLE001 - nobody else hears of it, and the client waits
            _log.exception("not connected of=%s port=%d", self.fence.id, self.target.port)
            self._fail("the gateway has failed; its log says more")
        else:
            self.recheck()  # the rules may be others than when it was dialled
            if not self.relay.is_over:
                self._connected()
            self.relay.join(transport)

    def _connected(self) -> None:
        """The other side is there, and was not told anything yet."""

    def _waits_for_proxy(self) -> bool:
        """Whether the client waits for the answer of a proxy."""
        return False

    def _fail(self, why: str) -> None:
        """The place is allowed and cannot be reached. A client that speaks HTTP gets the reason."""
        if self._key is not None:
            self._key = self.fence.journal.explain(self._key, why)
        if self._requests is not None or self._waits_for_proxy():
            self._answer_and_close(self._refusal_of(why, status=502, code="egress_unreachable"))
        else:
            self.relay.abort()

    def recheck(self) -> None:
        """The rules were changed: what they do not allow any more ends."""
        if self.relay.is_over or self._key is None or not self._key.allowed:
            return
        target, rules = self.target, self._rules
        decision = self._opening.whole
        if self._request is not None:
            decision = judge_request(rules, self._request)
        if self._brokering is not None:
            decision = self._brokering.judged(decision, rules)
        why = "" if decision.allowed else "the rules were changed"
        if not why and self._pinned:
            how = {"literal": not target.name, "trusted": self._trusted}
            why = self.fence.outside.objection(rules, [self._pinned], target.port, **how)
        if why:
            self._record(decision, why)
            self.relay.abort()

    def _refuse(self, why: str, decision: Decision) -> None:
        """Say so in the client's own protocol, if it speaks one soon; otherwise reset."""
        self._record(decision, why)
        self._refusal = self._refusal_of(why, decision)
        if self._waits_for_proxy() or self._requests is not None:
            self._answer_and_close(self._refusal)
            return
        self.take = self._refuse_in_kind
        self.relay.abort_in(_IN_KIND_S)
        self._refuse_in_kind(b"")

    def _refuse_in_kind(self, data: bytes) -> None:
        assert self._refusal is not None
        self._held += data
        kind = spoken(bytes(self._held)) if self._held else Spoken.UNKNOWN_YET
        if kind is Spoken.HTTP:
            self._answer_and_close(self._refusal)
        elif kind in (Spoken.SOMETHING_ELSE, Spoken.SSH):
            self.relay.abort()
        elif kind is Spoken.TLS:
            hello = ClientHello(lambda _name: False)
            if hello.feed(bytes(self._held)) is not None:
                self._close_with(hello.refusal())

    @property
    def _is_refused(self) -> bool:
        return self._refusal is not None

    def _refusal_of(
        self, why: str, decision: Decision = NOBODY, *, status: int = 403, code: str = ""
    ) -> Refusal:
        return Refusal(
            self.fence.shown,
            self.target.host,
            self.target.port,
            why,
            decision.by,
            status,
            code or "egress_denied",
            can_be_allowed=why.startswith(NO_RULE),
            dialect=self._brokering.dialect if self._brokering else None,
        )

    def _malformed(self, why: str) -> Refusal:
        return self._refusal_of(why, status=400, code="malformed")

    def _answer_and_close(self, refusal: Refusal) -> None:
        """Unless an answer of the other side is under way, in which this would end up."""
        if self._is_answered or not self.relay.is_joined:
            self._close_with(refusing.page(refusal))
        else:
            self.relay.abort()

    def _close_with(self, last_words: bytes) -> None:
        self.take = self._drop
        self.relay.tell_and_close(last_words)

    def _record(self, decision: Decision, why: str) -> None:
        """Under which heading it is told of; bytes go with the last one."""
        self.flush()
        fence, where = self.fence, (self.fence.id, self.target.host, self.target.port)
        allowed, source = decision.allowed and not why, fence.source_of(decision.rule)
        if allowed:
            self._keep_grant(decision.rule, source)
        key = Key(*where, allowed, decision.by, source, why, shown=fence.shown)
        if key != self._key:
            fence.journal.add(key, connections=1)
            self._key = key

    def _take_back(self) -> None:
        """What its name allows is refused for its address: it is told as refused only."""
        if self._key is not None:
            self.fence.journal.take_back(self._key)
            self._key = None

    def flush(self) -> None:
        """Tell of the bytes so far."""
        if self._key is not None and ((relay := self.relay).up or relay.down):
            self.fence.journal.add(self._key, up=relay.up, down=relay.down)
            relay.up = relay.down = 0

    def finished(self) -> None:
        self._forget_deadline()
        if self._dialing is not None and not self._dialing.done():
            self._dialing.cancel()
        self.flush()
        if self._brokering is not None:
            self._brokering.finished(reached=self.relay.is_joined)
        self.fence.desk.connections.discard(self)
        self.fence.dismiss(self)
