"""The network: closed unless opened, and user ports that can be reached from outside."""

import asyncio
import random

from paddock.domain.egress import CLOSED, OPEN, EgressPolicy, NetworkMode, SourcedRule
from paddock.domain.errors import InvalidRequest, LimitExceeded, Unsupported
from paddock.domain.ids import new_ulid
from paddock.ports.provider import Capabilities, Isolation
from paddock.testing.conformance import probes, reach
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import Nonconformity, expect, refused, same
from paddock.testing.conformance.outside import Address, addresses_here, listener_here
from paddock.testing.conformance.refusals import admits_that_nothing_is_fenced, refuses
from paddock.testing.conformance.subject import Box, Subject

_RANDOM = random.SystemRandom()
_SERVER_START_S = 15.0


async def reached_from(box: Box, address: Address, *others: str) -> list[str]:
    """The addresses at which a program in the sandbox could connect to the port."""
    host, port = address
    return (await box.tell(probes.CONNECT, str(port), host, *others)).split()


def _closes(capabilities: Capabilities) -> bool:
    return capabilities.egress or capabilities.isolation is not Isolation.NONE


def _opens(capabilities: Capabilities) -> bool:
    return capabilities.egress


def _opens_live(capabilities: Capabilities) -> bool:
    return capabilities.live_egress


@check(proves=("P16",), when=_closes, otherwise=admits_that_nothing_is_fenced)
async def a_closed_sandbox_reaches_neither_host_nor_network(subject: Subject) -> None:
    """Without any egress a sandbox cannot connect to this host, its gateway or anything beyond."""
    async with subject.sandbox() as box, listener_here() as here, subject.terms.outside() as away:
        same(await reached_from(box, here, *addresses_here()), [], "listeners of this host reached")
        same(await reached_from(box, away), [], "listeners elsewhere reached")


@check(
    proves=("P16",),
    when=_opens,
    otherwise=refuses(
        open_egress=lambda subject, _: subject.provider.create(
            subject.key(), subject.spec(egress=OPEN)
        )
    ),
)
async def an_open_sandbox_reaches_the_network(subject: Subject) -> None:
    """With open egress it connects to what lies outside; without the capability it is refused."""
    async with subject.sandbox(egress=OPEN) as box, subject.terms.outside() as away:
        same(await reached_from(box, away), [away[0]], "what an open sandbox reaches")


@check(
    proves=("P16",),
    when=_opens_live,
    otherwise=refuses(
        set_egress_open=lambda subject, ref: subject.provider.set_egress(ref, OPEN),
        set_egress_closed=lambda subject, ref: subject.provider.set_egress(ref, CLOSED),
    ),
)
async def egress_is_changed_while_it_runs(subject: Subject) -> None:
    """set_egress() opens and closes a running sandbox, whose processes go on."""
    async with subject.sandbox() as box, subject.terms.outside() as away:
        await box.tell(probes.DAEMON_OF, "counter", probes.COUNTER, "number")
        pid = (await box.say("cat number")).split()[0]
        same(await reached_from(box, away), [], "what it reaches while closed")
        await subject.provider.set_egress(box.ref, OPEN)
        same(await reached_from(box, away), [away[0]], "what it reaches once opened")
        await subject.provider.set_egress(box.ref, OPEN)
        await subject.provider.set_egress(box.ref, CLOSED)
        same(await reached_from(box, away), [], "what it reaches once closed again")
        same((await box.say("cat number")).split()[0], pid, "the process that went on")


def _allowlist(*rules: str) -> EgressPolicy:
    return EgressPolicy(NetworkMode.ALLOWLIST, tuple(SourcedRule(rule) for rule in rules))


def _lists(capabilities: Capabilities) -> bool:
    return capabilities.allowlist


@check(
    proves=("P16",),
    when=_lists,
    otherwise=refuses(
        allowlist=lambda subject, _: subject.provider.create(
            subject.key(), subject.spec(egress=_allowlist("192.0.2.1"))
        )
    ),
)
async def an_allowlist_lets_out_what_it_names_and_nothing_else(subject: Subject) -> None:
    """Rules by address and port hold, also when they are changed; none at all lets out nothing."""
    async with subject.terms.outside() as away, listener_here() as here:
        host, port = away
        named, another = (
            _allowlist(f"{host}/32:{port}"),
            _allowlist(f"{host}/32:{port % 65535 + 1}"),
        )
        async with subject.sandbox(egress=named) as box:
            same(await _greeted(box, away), [host], "what it reaches that its list names")
            same(await _greeted(box, here, *addresses_here()), [], "what it reaches of this host")
            if subject.capabilities.live_egress:
                await subject.provider.set_egress(box.ref, another)
                same(await _greeted(box, away), [], "what it reaches once another port is named")
                await subject.provider.set_egress(box.ref, named)
                same(await _greeted(box, away), [host], "what it reaches once it is named again")
        async with subject.sandbox(egress=_allowlist()) as box:
            same(await _greeted(box, away), [], "what it reaches with an empty list")


async def _greeted(box: Box, address: Address, *others: str) -> list[str]:
    """Where it is not only connected to somebody, but has heard the one who is meant."""
    host, port = address
    return (await box.tell(probes.GREETED, str(port), host, *others)).split()


@check(proves=("P1", "V2"))
async def a_declared_port_is_reached_from_outside(subject: Subject) -> None:
    """endpoint() leads to an HTTP server that listens in the sandbox."""
    port = _some_port()
    async with subject.sandbox(ports=(port,)) as box:
        await _serves(subject, box, port)


async def refuses_late_ports(subject: Subject) -> None:
    declared, undeclared = _some_port(), _some_port()
    async with subject.sandbox(ports=(declared,)) as box:
        call = subject.provider.endpoint(box.ref, undeclared)
        await refused(call, Unsupported, "endpoint() of a port that was not declared")
        same(await box.say("echo on"), "on", "a command after the refusal")


def _late_ports(capabilities: Capabilities) -> bool:
    return capabilities.late_ports


@check(when=_late_ports, otherwise=refuses_late_ports)
async def a_port_may_be_opened_later(subject: Subject) -> None:
    """endpoint() also leads to ports that were not declared; or says that it cannot."""
    port = _some_port()
    async with subject.sandbox() as box:
        await _serves(subject, box, port)


def _ports_are_limited(capabilities: Capabilities) -> bool:
    return capabilities.max_ports is not None


async def takes_many_ports(subject: Subject) -> None:
    async with subject.sandbox(ports=tuple(range(20_000, 20_032))) as box:
        same(await box.say("echo on"), "on", "a command in a sandbox with 32 declared ports")


@check(proves=("P4",), when=_ports_are_limited, otherwise=takes_many_ports)
async def more_ports_than_it_has_are_refused_beforehand(subject: Subject) -> None:
    """One port more than max_ports is refused and makes nothing; without a maximum, many work."""
    most = subject.capabilities.max_ports or 0
    over = subject.spec(ports=tuple(range(20_000, 20_000 + most + 1)))
    call = subject.provider.create(subject.key(), over)
    await refused(call, (LimitExceeded, InvalidRequest), f"{most + 1} ports")
    same(await subject.mine(), [], "sandboxes after a refused creation")
    async with subject.sandbox(ports=over.ports[:most]) as box:
        same(await box.say("echo on"), "on", "a command in a sandbox with all ports it may have")


async def _serves(subject: Subject, box: Box, port: int) -> None:
    text = f"served-{new_ulid()}"
    await box.tell(probes.DAEMON_OF, "server", probes.SERVE, "server", str(port), text)
    endpoint = await subject.provider.endpoint(box.ref, port)
    same(endpoint.port, port, "the port of the endpoint")
    ways = endpoint.url or endpoint.socket or endpoint.netns_pid
    expect(ways, "the endpoint has neither a url nor a socket nor a namespace")
    problem: OSError | None = None
    for _ in range(int(_SERVER_START_S * 10 * subject.terms.patience)):
        try:
            status, body = await reach.get(endpoint)
        except OSError as error:
            problem = error
            await asyncio.sleep(0.1)
        else:
            same((status, body.decode()), (200, text), "what the endpoint answers")
            return
    raise Nonconformity(f"nobody answers at {endpoint}: {problem}")


def _some_port() -> int:
    """A high one at random: without isolation the sandboxes share the host's."""
    return _RANDOM.randrange(20_000, 32_000)
