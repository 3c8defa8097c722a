"""All that SSH has to do with sandboxes, in one."""

from dataclasses import dataclass

from paddock.services.ssh_access import Gate, SshAccesses
from paddock.services.ssh_visits import SshVisits


@dataclass(frozen=True, slots=True)
class Ssh:
    """Who is let in, what they do there, and where the gateway is."""

    accesses: SshAccesses
    visits: SshVisits
    gate: Gate
    public: str = ""
    """How the outside reaches the gateway, where the settings say so."""
