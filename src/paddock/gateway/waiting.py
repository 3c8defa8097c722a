"""A connection that waits for an approval or for data of the client."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from paddock.domain.egress.asking import may_be_asked_for
from paddock.domain.egress.deciding import Decision
from paddock.domain.egress.rule import Rule
from paddock.gateway.asking import MOST_BYTES
from paddock.gateway.refusing import Refusal
from paddock.gateway.relay import Relay
from paddock.gateway.requests import Requests
from paddock.gateway.target import Target

if TYPE_CHECKING:
    from paddock.gateway.fence import Fence

NO_RULE = "no rule allows it"
NOBODY = Decision(allowed=False)
Take = Callable[[bytes], None]


class Waiting:
    """It is held where no rule is about its target, and judged anew once something has changed."""

    fence: "Fence"
    relay: Relay
    target: Target
    take: Take
    _client: Any = None
    """Its transport."""
    _held: bytearray
    _peeked: bytearray | None = None
    """The beginning of the answer, which decides how the client's data is handled."""
    _next_take: Callable[[bytes], Take | None]
    _granted: tuple[Rule, ...] = ()
    """Somebody's answer that it was allowed by: it holds for as long as it lasts."""
    _requests: Requests | None = None
    _deadline: asyncio.TimerHandle | None = None
    """Ends a connection whose beginning, or whose next request's head, does not get complete."""
    _deadline_of = 0
    """The number of requests before the one that the deadline is for."""

    def aim(self, target: Target) -> None:
        raise NotImplementedError

    def _refuse(self, why: str, decision: Decision) -> None:
        raise NotImplementedError

    def _record(self, decision: Decision, why: str) -> None:
        raise NotImplementedError

    def _refusal_of(
        self, why: str, decision: Decision = NOBODY, *, status: int = 403, code: str = ""
    ) -> Refusal:
        raise NotImplementedError

    def _answer_and_close(self, refusal: Refusal) -> None:
        raise NotImplementedError

    @property
    def _rules(self) -> tuple[Rule, ...]:
        return self.fence.rules + self._granted

    def _hold(self, data: bytes) -> None:
        self._held += data

    def _drop(self, data: bytes) -> None:
        """Discard data from the client: the connection is closing."""

    def _unheld(self) -> bytes:
        held = bytes(self._held)
        self._held.clear()
        return held

    def _ask_or_refuse(self, decision: Decision) -> None:
        """What no rule is about may be asked for; `settled` is called once that is answered."""
        not_held = self._ask() if decision.rule is None else None
        if not_held == "":
            self.take = self._hold_back
        else:
            self._refuse(not_held or reason(decision), decision)

    def _ask(self) -> str | None:
        """Empty when it is held; otherwise why not, None where nobody is asked."""
        fence, target = self.fence, self.target
        if not fence.asking.hold_s or not may_be_asked_for(target.name, target.address):
            return None
        if fence.outside.objection_known(fence.rules, target.host, target.port):
            return None
        return fence.asking.hold(self, (target.host, target.port))

    @property
    def _is_held(self) -> bool:
        return self.take == self._hold_back

    def settled(self) -> bool:
        """Only while it is held: what goes on already is never aimed again."""
        if not self._is_held or self.relay.is_over or self._client.is_closing():
            return False
        self._client.resume_reading()
        self.aim(self.target)
        return self._is_held

    def _hold_back(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > MOST_BYTES:
            self._client.pause_reading()

    def took(self) -> None:
        """Start or cancel the deadline for an incomplete head. Trickled bytes do not extend it."""
        number = self._requests.count if self._requests is not None else 0
        if self._deadline is not None and (
            number != self._deadline_of or not self._has_incomplete_head
        ):
            self._forget_deadline()
        if self._deadline is None and self._has_incomplete_head:
            head_s = self.fence.desk.patience.head_s
            self._deadline = asyncio.get_running_loop().call_later(head_s, self._cut_off, head_s)
            self._deadline_of = number

    @property
    def _has_incomplete_head(self) -> bool:
        """Whether a request head, ClientHello or first line is only partly received."""
        if self._requests is not None and self._requests.is_in_head:
            return True
        encrypted = self.relay.encrypted
        if encrypted is not None and not encrypted.is_agreed:
            return True
        return bool(self._held) and self.take not in (self._hold_back, self._hold_till_answered)

    def _cut_off(self, after_s: float) -> None:
        why = f"the request head or the TLS ClientHello was not complete after {after_s:g} s"
        if self.target.host:
            self._record(NOBODY, why)
        if self._requests is None:
            self.relay.abort()
        else:
            self._answer_and_close(self._refusal_of(why, status=408, code="timed_out"))

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hold_for_answer(self, next_take: Callable[[bytes], Take | None]) -> None:
        """Hold the client's data until `next_take`, given the answer so far, returns a handler."""
        self._peeked, self._next_take = bytearray(), next_take
        self.take = self._hold_till_answered

    def _hold_till_answered(self, data: bytes) -> None:
        """Not more than is held of anybody: who agrees to nothing is no reason to fill memory."""
        self._hold_back(data)

    def _look_at_answer(self, data: bytes) -> None:
        assert self._peeked is not None
        self._peeked += data
        take = self._next_take(bytes(self._peeked))
        if take is None:
            return
        self._peeked, self.take = None, take
        self._client.resume_reading()
        if held := self._unheld():
            take(held)

    def _keep_grant(self, rule: Rule | None, source: str) -> None:
        """Remember that it was an answer which allowed this, not a rule."""
        if rule is not None and source and source == self.fence.asking.source_of(rule):
            self._granted = (rule,)


def reason(decision: Decision) -> str:
    """Why something is refused."""
    return f"denied by the rule {decision.by}" if decision.rule else NO_RULE
