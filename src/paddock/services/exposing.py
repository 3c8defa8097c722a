"""Values that programs have themselves, because somebody said so: told, told of, and taken out."""

from collections.abc import Callable, Mapping

from paddock.domain.audit import AuditEntry
from paddock.domain.broker.binding import Binding
from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import Secret, Use, app_of, may_go
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.bindings import Bindings
from paddock.services.guests import Guests
from paddock.services.secrets import Secrets

_MOST_REMEMBERED = 10_000
_SILENT_S = 30.0
Placeholder = Callable[[SandboxRecord, Binding], str]


class Exposing:
    """Commands that begin have the values of now; those that run keep what they began with."""

    def __init__(
        self, store: Store, clock: Clock, secrets: Secrets, bindings: Bindings, *, guests: Guests
    ) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._bindings = bindings
        self._guests = guests
        self._inside: dict[str, dict[str, str]] = {}
        """By sandbox: variables that hold a value, or did, and whose."""
        self._silent: dict[str, float] = {}
        """By sandbox whose guest did not answer: when it is told again, so that nobody has to wait
        for it every time."""
        self._told: dict[str, tuple[int, dict[str, str]]] = {}
        """By sandbox: the edition of what is bound that it was told last, and which variables of
        that hold a value."""

    async def look(self, binding: Binding) -> tuple[Secret, str]:
        return await self._secrets.look(binding.team_id, binding.secret, app_of(binding.scope))

    def is_over(self, binding: Binding) -> bool:
        return binding.expires_at is not None and binding.expires_at <= self._clock.wall()

    async def value(self, sandbox: SandboxRecord, binding: Binding) -> str:
        """As long as programs get it."""
        if self.is_over(binding) or not binding.expose:
            return ""
        try:
            secret, value = await self.look(binding)
        except PaddockError:
            return ""
        return value if may_go(secret.policy, _use(sandbox)) else ""

    async def _lent(self, binding: Binding) -> str:
        """The same after the binding's time, and where its policy has become stricter: a program
        may still have it from before. What cannot be looked up now is not taken for nothing: what
        a program says meanwhile would be kept with the value in it."""
        if not binding.expose:
            return ""
        try:
            return (await self.look(binding))[1]
        except PaddockError as error:
            if error.retryable:
                raise
            return ""

    async def names(self, sandbox: SandboxRecord) -> list[str]:
        """Secrets whose values a sandbox's programs have, by name."""
        bound = self._bindings.of(sandbox)
        found = {each.secret for each in bound if await self.value(sandbox, each)}
        if sandbox.app:
            sensitive = await self._secrets.sensitive_names(sandbox.team_id, sandbox.app)
            found |= sensitive - {each.secret for each in bound}
        return sorted(found)

    async def values(self, sandbox: SandboxRecord, placeholder: Placeholder) -> dict[str, str]:
        """What must not be kept of what its programs tell, and what stands for each. Raises what
        is worth trying again where that cannot be known now."""
        bound = self._bindings.of(sandbox)
        if not sandbox.app and not any(each.expose for each in bound):
            return {}
        found = {
            value: placeholder(sandbox, each) for each in bound if (value := await self._lent(each))
        }
        if sandbox.app:
            names = await self._secrets.sensitive_names(sandbox.team_id, sandbox.app)
            values = await self._secrets.environment(sandbox.team_id, sandbox.app, Use.RUNTIME)
            hidden = {each.secret for each in bound}
            found |= {values[name]: f"({name})" for name in names - hidden}
        return found

    @property
    def is_empty(self) -> bool:
        """No sandbox has any, as far as is known."""
        return not any(self._inside.values())

    def expect(self, sandbox: SandboxRecord, inside: Mapping[str, str], edition: int) -> None:
        """It is about to be told this edition, in which these variables hold values."""
        if max(len(self._inside), len(self._told)) > _MOST_REMEMBERED:
            for each in (self._inside, self._told, self._silent):
                each.clear()
        if known := {**self._inside.get(sandbox.id, {}), **inside}:
            self._inside[sandbox.id] = known
        self._told[sandbox.id] = edition, dict(inside)

    def is_late(self, sandbox: SandboxRecord, edition: int) -> bool:
        """Programs that begin now would not have what they should, or have what they should not:
        it was told something else, or by another process, or a value's time is over."""
        inside = self._inside.get(sandbox.id, {})
        if sandbox.state is not SandboxState.RUNNING or not (inside or self._bindings.of(sandbox)):
            return False
        if self._silent.get(sandbox.id, 0.0) > self._clock.now():
            return False
        told = self._told.get(sandbox.id)
        return told is None or told[0] != edition or bool(inside.keys() - self._wanted(sandbox))

    def next_end(self) -> float | None:
        """When the next value has to be taken out."""
        ends = [each.expires_at for each in self._bindings.all_exposed() if not self.is_over(each)]
        return min((each for each in ends if each is not None), default=None)

    def _wanted(self, sandbox: SandboxRecord) -> set[str]:
        return {
            each.env
            for each in self._bindings.of(sandbox)
            if each.expose and each.env and not self.is_over(each)
        }

    async def tell(
        self, sandbox: SandboxRecord, env: Mapping[str, str], *, again: bool = False
    ) -> None:
        """Commands that begin from now on have these variables, and no value of before. What was
        only told again is not told of."""
        if sandbox.state is not SandboxState.RUNNING:
            return
        before = self._inside.get(sandbox.id, {})
        _, inside = self._told[sandbox.id]
        gone = {name: whose for name, whose in before.items() if name not in inside}
        told = {**dict.fromkeys(gone, ""), **env, **sandbox.env}
        try:
            if told:
                await (await self._guests.of(sandbox)).init(env=told)
        except PaddockError:
            self._told.pop(sandbox.id, None)
            self._silent[sandbox.id] = self._clock.now() + _SILENT_S
            raise
        self._silent.pop(sandbox.id, None)
        self._inside[sandbox.id] = inside
        if gone or not again:
            await self.note(sandbox, sorted(gone.values()))

    async def note(self, sandbox: SandboxRecord, taken_out: list[str] | None = None) -> None:
        """That a value is inside is told each time that it gets there, and so is its end."""
        found = await self.names(sandbox)
        if not found and not taken_out:
            return
        now = self._clock.wall()
        detail: dict[str, object] = {"name": sandbox.name, "secrets": found, **app_in(sandbox)}
        if taken_out:
            detail["taken_out"] = taken_out
        team, kind = sandbox.team_id, EventKind.SECRET_EXPOSED
        event = Event(team, kind, sandbox.id, now, detail)
        entry = AuditEntry(team, "paddock", kind, sandbox.id, now, detail)
        await self._store.write(lambda tx: (tx.events.append([event]), tx.audit.append([entry])))


def _use(sandbox: SandboxRecord) -> Use:
    """Programs of an app are its run time; without one it is an agent's place of work."""
    return Use.RUNTIME if sandbox.app else Use.AGENT
