"""What somebody wants a sandbox to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.domain.command_policy import CommandPolicy
from paddock.domain.egress import EgressWish
from paddock.domain.lifetime import Terms
from paddock.domain.outage import bound_by
from paddock.domain.sandbox import Limits
from paddock.domain.volume import MountWish


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants a sandbox to be. What is None or empty is left to the defaults."""

    template: str = ""
    snapshot: str = ""
    name: str = ""
    provider: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    """Of the work that it is for: the one that has it already will do."""
    another: bool = False
    """Not that one, but a further one of the group."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    resources: Limits = field(default_factory=Limits)
    lifetime: Terms = field(default_factory=Terms)
    keep_alive_s: float | None = None
    egress: EgressWish | None = None
    ports: tuple[int, ...] = ()
    runtime: str = ""
    hardened: bool | None = None
    owner: str = ""
    command_policy: CommandPolicy | None = None
    app: str = ""
    volumes: tuple[MountWish, ...] = ()
    task: str = ""
    """That it is made for; never what a caller says."""


def bound(wish: Wish, source: str = "") -> str:
    """Why it can be fulfilled on one provider only, in words; empty where it does not matter."""
    return bound_by(
        provider=wish.provider,
        snapshot=wish.snapshot,
        source=source,
        volumes=bool(wish.volumes),
    )
