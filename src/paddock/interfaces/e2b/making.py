"""What a client asks a sandbox to be, as Paddock's own wish for one."""

from collections.abc import Mapping

from paddock.domain.errors import InvalidRequest, Unsupported
from paddock.domain.lifetime import OnTimeout, Terms
from paddock.domain.volume import MountWish
from paddock.interfaces.api.context import Services
from paddock.interfaces.e2b.marks import Mark, internet_word, marked
from paddock.interfaces.e2b.network import Network, check_https_ports, egress_of, unsaid
from paddock.interfaces.e2b.shapes import CreateSandbox
from paddock.interfaces.e2b.sources import Source
from paddock.services.wishes import Wish


def wish_of(given: Services, source: Source, asked: CreateSandbox, timeout: int) -> Wish:
    """`timeout` is what counts where the client says nothing."""
    _check(asked)
    default = unsaid(internet=given.e2b.config.internet)
    return Wish(
        template=source.template,
        snapshot=source.snapshot,
        labels=marked(asked.metadata, _marks(asked, source)),
        env={**source.left.env, **asked.env_vars},
        lifetime=terms_of(asked, timeout),
        egress=egress_of(asked.network, asked.allow_internet_access, default),
        volumes=tuple(MountWish(each.name, each.path) for each in asked.volume_mounts),
    )


def terms_of(asked: CreateSandbox, timeout: int) -> Terms:
    """E2B's sandboxes end by the clock, never for want of work."""
    seconds = timeout if asked.timeout is None else asked.timeout
    if seconds < 1:
        raise InvalidRequest(
            f"the timeout is {seconds} s", remediation="ask for at least one second"
        )
    terms = Terms(timeout_s=float(seconds), idle_timeout_s=None)
    if asked.auto_pause:
        terms["on_timeout"] = OnTimeout.PAUSE if asked.auto_pause_memory else OnTimeout.STOP
    return terms


def _marks(asked: CreateSandbox, source: Source) -> Mapping[Mark, str]:
    network = asked.network or Network()
    return {
        Mark.AUTO_RESUME: "true" if asked.auto_resume.enabled else "",
        Mark.TRAFFIC: "token" if network.allow_public_traffic is False else "public",
        Mark.MASKED_HOST: network.mask_request_host,
        Mark.HTTPS_PORTS: ",".join(map(str, sorted(set(network.https_ports)))),
        Mark.INTERNET: internet_word(asked=asked.allow_internet_access),
        Mark.TEMPLATE: source.name if source.snapshot else "",
    }


def _check(asked: CreateSandbox) -> None:
    if asked.auto_resume.enabled and not asked.auto_pause:
        raise InvalidRequest(
            "autoResume is only for sandboxes that are paused at their timeout",
            remediation="set on_timeout to pause as well",
        )
    if asked.auto_resume.enabled and not asked.auto_pause_memory:
        raise InvalidRequest(
            "autoResume needs a pause that keeps the memory",
            remediation="leave out autoPauseMemory, or autoResume",
        )
    if asked.network is not None:
        check_https_ports(asked.network)
    if asked.iam:
        raise Unsupported("workload identity tokens are not offered here")
