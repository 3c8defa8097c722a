"""All checks there are, in the order in which a report is best read."""

from paddock.testing.conformance import (
    agents,
    archiving,
    checkpointing,
    commands,
    creation,
    ending,
    files,
    forking,
    health,
    identity,
    ignoring,
    isolation,
    limits,
    network,
    pausing,
    reattaching,
    runs,
    sleeping,
    snapshots,
    stopping,
    volumes,
)
from paddock.testing.conformance.check import Check, checks_of

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (
        health,
        creation,
        identity,
        ending,
        commands,
        files,
        reattaching,
        runs,
        stopping,
        archiving,
        sleeping,
        pausing,
        snapshots,
        ignoring,
        checkpointing,
        forking,
        volumes,
        agents,
        network,
        limits,
        isolation,
    )
    for check in checks_of(module)
)


def named(name: str) -> Check:
    return next(check for check in CHECKS if check.name == name)
