"""Providers whose agents can be written to, are not there, or are shown unasked."""

from paddock.domain.agent import AGENTS
from paddock.ports.provider import SandboxSpec
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.records import Record
from paddock.testing.simulated import SimulatedProvider

SHOWN = "agents_of_the_host_are_read_and_not_written"

# Over a copy of /opt in memory, so that the host is given no mount point; exec keeps the pid.
_MOUNTED = (
    "unshare --mount --propagation private sh -c '"
    "mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work && "
    "mount -t overlay -o lowerdir=/opt,upperdir=/mnt/upper,workdir=/mnt/work none /opt && "
    f'mkdir -p {AGENTS} && mount --bind -o "$2" "$1" {AGENTS} && '
    f'mount -o "remount,bind,$2" {AGENTS} && shift 2 && exec "$@"\' sh'
)


class ShowsAgents(SimulatedProvider):
    """Has a directory of agents. There is no fence, so root can always mount it anew."""

    options = "ro"

    def _mounting(self, record: Record) -> tuple[str, ...]:
        shown = self._place / "agents"
        shown.mkdir(exist_ok=True)
        return ("sh", "-c", f'exec {_MOUNTED} "$@"', "sh", str(shown), self.options)


class LetsThemBeWritten(ShowsAgents):
    """Everyone's agents are what one sandbox made of them."""

    options = "rw"


class NotInCopies(ShowsAgents):
    """Shows them in what is made of a template alone."""

    def _lay_out(self, record: Record, spec: SandboxSpec, source: str) -> None:
        super()._lay_out(record, spec, source)
        if spec.snapshot is not None or source:
            (self._records.home(record.id) / "copy").touch()

    def _mounting(self, record: Record) -> tuple[str, ...]:
        is_copy = (self._records.home(record.id) / "copy").exists()
        return () if is_copy else super()._mounting(record)


def _claimed(provider: type[SimulatedProvider]) -> type[SimulatedProvider]:
    made = claiming(provider, agents=True)
    assert issubclass(made, SimulatedProvider)
    return made


DEFECTS = (
    Defect("claims agents and shows none", _claimed(SimulatedProvider), (SHOWN,)),
    Defect("lets sandboxes write to agents", _claimed(LetsThemBeWritten), (SHOWN,)),
    Defect("shows agents to no copy", _claimed(NotInCopies), (SHOWN,)),
    Defect("lets root mount agents anew", _claimed(ShowsAgents), (SHOWN,)),
    Defect("shows agents that it does not claim", ShowsAgents, (SHOWN,)),
)
