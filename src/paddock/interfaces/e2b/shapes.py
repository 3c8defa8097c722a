"""What clients send about sandboxes."""

from typing import Annotated

from pydantic import Field

from paddock.interfaces.api.schemas.common import Env, Text
from paddock.interfaces.e2b.bodies import Body, Switch
from paddock.interfaces.e2b.network import Network

Timeout = Annotated[int, Field(le=30 * 86400)]


class AutoResume(Body):
    """Whether traffic wakes it."""

    enabled: bool = False


class VolumeMount(Body):
    """A volume by name, and where it is seen."""

    name: Annotated[Text, Field(max_length=200)]
    path: Annotated[Text, Field(max_length=1024)]


class CreateSandbox(Body):
    """`POST /sandboxes` and `POST /v2/sandboxes`."""

    template: Annotated[Text, Field(alias="templateID", min_length=1, max_length=512)]
    timeout: Timeout | None = None
    metadata: dict[Text, Text] = Field(default_factory=dict)
    env_vars: Env = Field(default_factory=dict)
    auto_pause: bool = False
    auto_pause_memory: bool = True
    auto_resume: AutoResume = AutoResume()
    allow_internet_access: Switch = None
    network: Network | None = None
    volume_mounts: list[VolumeMount] = Field(default_factory=list)
    iam: dict[str, object] | None = None
    mcp: dict[str, object] | None = Field(default=None, repr=False)
    """Clients start the MCP gateway of the template themselves, so nothing is done with it here."""


class Connect(Body):
    """`POST /v2/sandboxes/{id}/connect`, and `/resume`."""

    timeout: Timeout = 300
    memory: bool = True


class SetTimeout(Body):
    """From now on; 0 or less is now."""

    timeout: Timeout


class Refresh(Body):
    """At least so long from now on."""

    duration: Timeout = 60


class Pause(Body):
    """What the pause keeps."""

    memory: bool = True
    require_healthy_guest: bool = False


class TakeSnapshot(Body):
    """A snapshot; `memory` left out takes what the provider can."""

    name: Annotated[Text, Field(max_length=200)] | None = None
    memory: bool | None = None


class Fork(Body):
    """So many copies."""

    timeout: Timeout = 15
    count: Annotated[int, Field(ge=1, le=20)] = 1
