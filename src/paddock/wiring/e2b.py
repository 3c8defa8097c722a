"""What E2B's clients need, made of the parts that all services are made of."""

from typing import Protocol

from paddock.adapters.providers.dialing import dial
from paddock.domain.team import Principal
from paddock.interfaces.e2b.services import E2bServices
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.activity import Activity
from paddock.services.build_files import BuildFiles
from paddock.services.builds import Builds
from paddock.services.changes import Changes
from paddock.services.headers import Headers
from paddock.services.inside import Inside
from paddock.services.passages import Passages
from paddock.services.policies import Policies
from paddock.services.previews import Previews
from paddock.services.providers import Providers
from paddock.services.sandboxes import Sandboxes
from paddock.services.snapshots import Snapshots
from paddock.services.stays import Stays
from paddock.settings import Settings


class Parts(Protocol):
    """What it takes."""

    @property
    def store(self) -> Store: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def sandboxes(self) -> Sandboxes: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def activity(self) -> Activity: ...
    @property
    def snapshots(self) -> Snapshots: ...
    @property
    def inside(self) -> Inside: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def anyone(self) -> Principal | None: ...


def e2b_of(
    parts: Parts, previews: Previews, stays: Stays, *, key: bytes, settings: Settings
) -> E2bServices:
    passages = Passages(
        parts.store,
        parts.clock,
        changes=parts.changes,
        sandboxes=parts.sandboxes,
        providers=parts.providers,
        policies=parts.policies,
        previews=previews,
        activity=parts.activity,
        dial=dial,
        key=key,
        stays=stays,
        anyone=parts.anyone,
    )
    builds = Builds(
        parts.store,
        parts.clock,
        sandboxes=parts.sandboxes,
        snapshots=parts.snapshots,
        inside=parts.inside,
        policies=parts.policies,
        files=BuildFiles(settings.server.data_dir / "build-files", parts.store),
    )
    return E2bServices(passages, builds, parts.headers, settings.e2b)
