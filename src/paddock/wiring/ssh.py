"""The SSH gateway, opened where the settings say."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from paddock.domain.errors import Unavailable
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services
from paddock.interfaces.ssh.config import GatewayLimits
from paddock.interfaces.ssh.gateway import gateway
from paddock.interfaces.ssh.host_key import host_key, public_line
from paddock.ports.clock import SystemClock
from paddock.ports.store import Store
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.inside import Inside
from paddock.services.once import Once
from paddock.services.policies import Policies
from paddock.services.previews import Previews
from paddock.services.ssh import Ssh
from paddock.services.ssh_access import Gate, SshAccesses
from paddock.services.ssh_visits import SshVisits
from paddock.settings import ServerConfig

_log = logging.getLogger(__name__)
_USUAL_PORT = ServerConfig().ssh_port


class Parts(Protocol):
    """What SSH is made of."""

    store: Store
    clock: SystemClock
    inside: Inside
    changes: Changes
    activity: Activity
    policies: Policies
    once: Once
    anyone: Principal | None


def ssh_of(parts: Parts, previews: Previews, public: str) -> Ssh:
    visits = SshVisits(
        parts.store,
        parts.clock,
        inside=parts.inside,
        changes=parts.changes,
        previews=previews,
        activity=parts.activity,
        policies=parts.policies,
    )
    accesses = SshAccesses(
        parts.store, parts.clock, parts.changes, once=parts.once, anyone=parts.anyone
    )
    return Ssh(accesses, visits, Gate(), public)


@asynccontextmanager
async def ssh_listening(
    config: ServerConfig, services: Services, limits: GatewayLimits | None = None
) -> AsyncIterator[None]:
    """The gateway while the block lasts, unless it is off.

    A port that was set has to be free. The usual one may be another server's on this host: then
    this one runs without a gateway, and says so to who asks for it.
    """
    if not config.ssh_port:
        yield
        return
    gate = services.ssh.gate
    key = host_key(config.data_dir)
    where = f"{config.ssh_host}:{config.ssh_port}"
    async with AsyncExitStack() as stack:
        try:
            port = await stack.enter_async_context(
                gateway(
                    (config.ssh_host, config.ssh_port),
                    key,
                    accesses=services.ssh.accesses,
                    visits=services.ssh.visits,
                    clock=SystemClock(),
                    limits=limits,
                )
            )
        except OSError as error:
            gate.why_closed = f"{where} cannot be had: {error.strerror}"
            if config.ssh_port != _USUAL_PORT:
                raise Unavailable(
                    f"cannot listen on {where}: {error.strerror}",
                    remediation="set server.ssh_port to a free port, or to 0 for no gateway",
                ) from error
            _log.warning("ssh gateway not opened", extra={"why": gate.why_closed})
        else:
            gate.address, gate.host_key = (config.ssh_host, port), public_line(key)
        yield
        gate.address, gate.why_closed = None, "the server is stopping"
