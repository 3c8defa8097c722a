"""A connection that credentials go into: to a host that one is bound to, or along a model route."""

from dataclasses import replace

from paddock.gateway.brokering import Brokering, Lack
from paddock.gateway.connection import Connection
from paddock.gateway.gathering import Paying
from paddock.gateway.holdback import Holdback
from paddock.gateway.injecting import Head
from paddock.gateway.requests import Denied, Gather, Judge, Request, Requests
from paddock.gateway.responses import Unreadable
from paddock.gateway.routing import Routing
from paddock.gateway.target import Target
from paddock.gateway.waiting import NOBODY


class Brokered(Connection):
    """As any other, until it is known to be one of these."""

    _paying: Paying | None = None
    _holdback: Holdback | None = None

    def _intercept(self) -> None:
        """Be the host to the client, and verify who is it outside."""
        self._broker(Brokering(self.fence, self.target), self._judge_intercepted)
        self.relay.encrypt(self.fence.desk.context(self.target), self._unheld())

    def _judge_intercepted(self, request: Request) -> None:
        """Refuse upgrades to protocols in which the gateway cannot find the secret."""
        if request.protocol:
            why = (
                f"a secret is bound to this host: no upgrade but WebSocket, not {request.protocol}"
            )
            raise self._denied(NOBODY, why[:200])
        self._judge(request)

    def _is_led_elsewhere(self, target: Target) -> bool:
        route = self.fence.desk.route(target.name)
        if route is None:
            return False
        self._follow(Routing(self.fence, route))
        return True

    def _follow(self, routing: Routing) -> None:
        """A route to a model API, which is spoken to in plain HTTP from inside."""
        self.target, self._trusted = routing.upstream, routing.is_plain

        def judge(request: Request) -> None:
            self._decided = routing.decision(self.fence.rules)
            if why := routing.objection(request, self._decided):
                raise self._denied(self._decided, why)
            self._record(self._decided, "")

        def is_read_on() -> bool:
            paying.stop()  # what waits is for nobody any more
            return routing.is_owed

        self._paying = paying = Paying(self, routing)
        self.relay.is_read_on = is_read_on
        self._broker(routing, judge, self._paying.gather)

    def _broker(self, brokering: Brokering, judge: Judge, gather: Gather | None = None) -> None:
        """Requests get credentials, and answers are looked at for them."""
        self._brokering = brokering
        self.fence.desk.connections.add(self)
        self._requests = Requests(judge, brokering.authority, rewrite=self._rewrite, gather=gather)
        self.relay.read_answer, self.relay.end_answer = self._read_answer, self._end_answer
        self._holdback = Holdback(self.relay, brokering.answers.release)
        self.take = self._read_requests

    def _rewrite(self, head: Head) -> Head:
        assert self._brokering is not None
        try:
            return self._brokering.rewritten(head, self._decided)
        except Lack as lack:
            raise self.lacking(lack) from lack

    def lacking(self, lack: Lack) -> Denied:
        """What the client is told of it."""
        refusal = self._refusal_of(lack.why, self._decided, status=lack.status, code=lack.code)
        self._refusal = replace(refusal, message=lack.why, fix=lack.remedy)
        return Denied(lack.why)

    def pause(self) -> None:
        """Nothing more is read until the request that was read goes on."""
        self.take = self._hold_till_answered

    def resume(self, request: bytes) -> None:
        """It does."""
        self.take = self._read_requests
        self._client.resume_reading()
        self._is_answered = False
        self._dial()
        self.relay.send(request)
        if held := self._unheld():
            self.take(held)

    def refuse(self, lack: Lack) -> None:
        """It does not."""
        self.lacking(lack)
        assert self._refusal is not None
        assert self._brokering is not None
        self._is_answered = self._is_answered and self._brokering.answers.is_between
        self._answer_and_close(self._refusal)

    def leave(self) -> None:
        """The next request is for another gateway: that is who counts what it costs. One that has
        begun is answered here: who sent some of it may not send it again."""
        is_begun = self._requests is not None and self._requests.is_in_head
        if self._brokering is not None and self._brokering.answers.is_idle and not is_begun:
            self.relay.finish()

    def finished(self) -> None:
        if self._paying is not None:
            self._paying.stop()
        if self._holdback is not None:
            self._holdback.stop()
        super().finished()

    def _read_answer(self, data: bytes) -> bytes:
        assert self._brokering is not None
        answers = self._brokering.answers
        try:
            made = answers.feed(data)
        except Unreadable as error:
            why = f"{error}, so it could not be looked at for values that stay outside"
            self._is_answered = answers.is_between
            self._fail(why)
            return b""
        if answers.holds and self._holdback is not None:
            self._holdback.begin()
        return made

    def _end_answer(self) -> bytes:
        assert self._brokering is not None
        try:
            return self._brokering.answers.end()
        except Unreadable:
            self.relay.abort()
            return b""

    def distrusted(self, why: str) -> None:
        said = f"TLS was not agreed upon with the client, for whom a secret is bound here: {why}"
        self._record(NOBODY, said)

    def ended_halfway(self) -> None:
        if self._brokering is None or self._brokering.answers.is_idle:
            self.relay.finish()

    def recheck_credentials(self) -> None:
        """What goes on under a credential that is no more, ends."""
        if self._brokering is not None and self._brokering.is_outdated:
            self._record(NOBODY, "a credential that it went on with was taken back")
            self.relay.abort()
