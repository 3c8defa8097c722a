"""The providers of this installation by name, and which is meant when none is named."""

from collections.abc import Callable, Iterator, Mapping

from paddock.domain.errors import NotFound, Unavailable
from paddock.ports.egress import Doorkeeper, FlowSource
from paddock.ports.provider import Provider


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
    ) -> None:
        self._opened = dict(opened)
        self._absent = dict(absent or {})
        self.default = default
        self.templates = dict(templates or {})
        """What some providers have beside the port; `services.templates` knows what it is."""
        self.flows = dict(flows or {})
        """What the gateways of some providers saw."""
        self.doors = dict(doors or {})
        """What is held there until somebody has answered."""

    def __iter__(self) -> Iterator[tuple[str, Provider]]:
        return iter(self._opened.items())

    def wrapped(self, wrap: Callable[[Provider], Provider]) -> "Providers":
        """The same, each in one layer more."""
        opened = {name: wrap(provider) for name, provider in self._opened.items()}
        more = {"templates": self.templates, "flows": self.flows, "doors": self.doors}
        return Providers(opened, self.default, self._absent, **more)  # type: ignore[arg-type]

    @property
    def absent(self) -> Mapping[str, str]:
        return self._absent

    def get(self, name: str) -> Provider:
        if (provider := self._opened.get(name or self.default)) is not None:
            return provider
        if why := self._absent.get(name):
            raise Unavailable(
                f"provider {name} is not in use: {why}", remediation="`paddock doctor` says more"
            )
        raise NotFound(
            f"there is no provider {name!r}",
            remediation=f"use one of: {', '.join(sorted(self._opened)) or 'none is set up'}",
        )
