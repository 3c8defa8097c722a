"""A connection to a host that secrets are bound to: they go in, and never come back."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddock.domain.broker.models import Dialect
from paddock.domain.egress.deciding import Decision
from paddock.domain.egress.rule import Rule
from paddock.gateway.credentials import Pair
from paddock.gateway.injecting import Head, Lacking, guarded, inject
from paddock.gateway.journal import UseKey
from paddock.gateway.protocol import Credential
from paddock.gateway.redacting import NOTHING
from paddock.gateway.relay import Relay
from paddock.gateway.responses import Responses
from paddock.gateway.target import Target

if TYPE_CHECKING:
    from paddock.gateway.fence import Fence

_TLS_PORT = 443
_MOST_BEFORE = 32
"""How many values of earlier requests are still searched for."""


class Lack(Exception):
    """A request needs a credential that cannot be had now."""

    status = 403

    def __init__(self, credential: Credential) -> None:
        self.credential = credential
        is_missing = bool(credential.lacks) or not credential.value
        said = "is empty" if is_missing else "has expired"
        self.why = credential.lacks or f"the secret {credential.secret} {said}"
        self.code = "credential_missing" if is_missing else "credential_expired"
        self.remedy = credential.remedy
        super().__init__(self.why)


class Brokering:
    """What of one connection is about credentials."""

    dialect: Dialect | None = None
    """In which errors are told; None is ours."""
    is_plain = False
    """The host is spoken to in plain HTTP, and may be private: an operator has named it."""

    def __init__(self, fence: "Fence", target: Target) -> None:
        self._fence = fence
        self._target = target
        self._used: tuple[Credential, ...] = ()
        self._put_in: dict[Pair, None] = {}
        """Values injected into this connection, in order. Others are not searched for in responses:
        a program that has its guesses echoed would learn which are right."""
        self._matcher = NOTHING
        self.answers = Responses(lambda: self._matcher)

    @property
    def authority(self) -> str:
        target = self._target
        return target.host if target.port == _TLS_PORT else f"{target.host}:{target.port}"

    def rewritten(self, head: Head, decision: Decision) -> Head:
        """The head as it is sent: with the values of now, whatever they were a request ago."""
        credentials = self._fence.desk.of(self._target)
        try:
            made = inject(head, credentials, time.time())
        except Lacking as lacking:
            lack = Lack(lacking.credential)
            self._note(lacking.credential, decision, lack.why)
            raise lack from lacking
        for each in made.used:
            self._note(each, decision)
        self._use(made.used)
        self.answers.expect(head.method)
        return guarded(made.head)

    def _use(self, used: tuple[Credential, ...]) -> None:
        """Record the values of the next request, so that responses are searched for them."""
        self._used = used
        pairs = [(e.value.encode(), e.placeholder.encode()) for e in used if e.placeholder]
        if all(each in self._put_in for each in pairs):
            return
        kept = [each for each in self._put_in if each not in pairs]
        self._put_in = dict.fromkeys([*kept[-_MOST_BEFORE:], *pairs])
        self._matcher = self._fence.desk.matchers.of(tuple(self._put_in))

    def _note(self, credential: Credential, decision: Decision, lacks: str = "") -> None:
        fence, target = self._fence, self._target
        key = UseKey(
            sandbox=fence.id,
            secret=credential.secret,
            host=target.host,
            port=target.port,
            way=credential.way,
            rule=decision.by,
            lacks=lacks,
            shown=fence.shown,
        )
        fence.journal.use(key)

    def judged(self, decision: Decision, rules: Sequence[Rule]) -> Decision:
        """What the rules of now have to say to it."""
        return decision

    def finished(self, *, reached: bool) -> None:
        """The connection has ended; whether there was one to the host as well."""

    def is_through(self, relay: Relay) -> bool:
        """The client has ended, or may say no more here, and has all the answers it asked for."""
        is_last = relay.client_ended or self._fence.is_leaving
        return is_last and self.answers.is_idle

    @property
    def is_outdated(self) -> bool:
        """It goes on beyond a request, with a value that is not one of now."""
        if not self.answers.spliced:
            return False
        now = self._fence.desk.of(self._target)
        held = {(each.placeholder, each.value) for each in now}
        return any((each.placeholder, each.value) not in held for each in self._used)
