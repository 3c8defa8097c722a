"""Plain records to store."""

import dataclasses
import itertools

from paddock.domain.audit import AuditEntry
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_ulid
from paddock.domain.lifetime import Clockwork
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.session import Session, SignInLink
from paddock.domain.team import Person, Role, Token

_millis = itertools.count(1_700_000_000_000)


def next_id(prefix):
    """Later than all before it, also within one millisecond."""
    return f"{prefix}_{new_ulid((next(_millis) + 0.5) / 1000)}"


def sandbox(team, name="", **changes):
    identifier = changes.pop("id", None) or next_id("sbx")
    record = SandboxRecord(
        id=identifier,
        team_id=team.id,
        name=name or identifier[4:],
        state=SandboxState.RUNNING,
        provider="local",
        created_at=1000.0,
        changed_at=1000.0,
        clock=Clockwork(active_at=1000.0),
    )
    return dataclasses.replace(record, **changes)


def snapshot(team, name="", **changes):
    identifier = next_id("snp")
    record = SnapshotRecord(
        id=identifier,
        team_id=team.id,
        name=name or identifier[4:],
        provider="local",
        created_at=1000.0,
    )
    return dataclasses.replace(record, **changes)


def token(team, **changes):
    record = Token(next_id("tok"), team.id, "laptop", Role.MEMBER, "digest", 1000.0)
    return dataclasses.replace(record, **changes)


def person(team, **changes):
    record = Person(next_id("usr"), team.id, "Ada", Role.MEMBER, 1000.0)
    return dataclasses.replace(record, **changes)


def link(someone, **changes):
    record = SignInLink(next_id("lnk"), someone.team_id, someone.id, "digest", 1000.0, 1600.0)
    return dataclasses.replace(record, **changes)


def session(someone, **changes):
    record = Session(
        id=next_id("ses"),
        team_id=someone.team_id,
        holder=someone.id,
        digest="digest",
        created_at=1000.0,
        expires_at=9000.0,
        used_at=1000.0,
    )
    return dataclasses.replace(record, **changes)


def event(team_id="tem_1", subject="sbx_1", at=1000.0, **changes):
    return Event(team_id, EventKind.SANDBOX_RUNNING, subject, at, **changes)


def entry(team_id="tem_1", at=1000.0, subject="sbx_1", **changes):
    return AuditEntry(team_id, "tok_1", "sandbox.create", subject, at, **changes)
