"""The providers of this installation by name, and which is meant when none is named."""

from collections.abc import Callable, Iterator, Mapping

from paddock.domain.errors import NotFound, Unavailable
from paddock.domain.outage import OUTAGE_S
from paddock.ports.egress import Doorkeeper, FlowSource
from paddock.ports.provider import Provider, SandboxSpec, SpecCheck


class Providers:
    """A provider that could not be opened is absent, and the reason is remembered (I2)."""

    def __init__(
        self,
        opened: Mapping[str, Provider],
        default: str,
        absent: Mapping[str, str] | None = None,
        *,
        templates: Mapping[str, object] | None = None,
        flows: Mapping[str, FlowSource] | None = None,
        doors: Mapping[str, Doorkeeper] | None = None,
        checks: Mapping[str, SpecCheck] | None = None,
        fallback: str = "",
        outage_s: float = OUTAGE_S,
    ) -> None:
        self._opened = dict(opened)
        self._absent = dict(absent or {})
        self.default = default
        self.fallback = fallback
        """Where sandboxes are made while the default is away; empty is nowhere."""
        self.outage_s = outage_s
        self.templates = dict(templates or {})
        """What some providers have beside the port; `services.templates` knows what it is."""
        self.flows = dict(flows or {})
        """What the gateways of some providers saw."""
        self.doors = dict(doors or {})
        """What is held there until somebody has answered."""
        own = {name: one for name, one in self._opened.items() if isinstance(one, SpecCheck)}
        self._checks: dict[str, SpecCheck] = dict(own if checks is None else checks)

    def __iter__(self) -> Iterator[tuple[str, Provider]]:
        return iter(self._opened.items())

    def wrapped(self, wrap: Callable[[Provider], Provider]) -> "Providers":
        """The same, each in one layer more."""
        opened = {name: wrap(provider) for name, provider in self._opened.items()}
        return Providers(
            opened,
            self.default,
            self._absent,
            templates=self.templates,
            flows=self.flows,
            doors=self.doors,
            checks=self._checks,
            fallback=self.fallback,
            outage_s=self.outage_s,
        )

    @property
    def in_use(self) -> str:
        """The default or, where that did not open, its fallback."""
        return self.fallback if self.default in self._absent and self.fallback else self.default

    @property
    def absent(self) -> Mapping[str, str]:
        return self._absent

    def check(self, name: str, spec: SandboxSpec) -> None:
        """Raise what create() would, as far as that is known beforehand."""
        if (known := self._checks.get(name)) is not None:
            known.check_spec(spec)

    def get(self, name: str) -> Provider:
        name = name or self.default
        if (provider := self._opened.get(name)) is not None:
            return provider
        if why := self._absent.get(name):
            raise Unavailable(
                f"provider {name} is not in use: {why}", remediation="`paddock doctor` says more"
            )
        raise NotFound(
            f"there is no provider {name!r}",
            remediation=f"use one of: {', '.join(sorted(self._opened)) or 'none is set up'}",
        )
