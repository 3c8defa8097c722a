"""Every record that hypothesis can think of."""

from hypothesis import strategies as st

from paddock.domain.egress import EgressWish, NetworkMode
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_ulid
from paddock.domain.lifetime import Clockwork, Lifetime, OnTimeout
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, SnapshotRecord
from paddock.domain.sandbox import Resources, SandboxState
from paddock.domain.team import Role, Scope, Token

lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
any_text = st.text(st.characters())
moments = st.floats(0, 1e11)
maybe_moments = st.none() | moments
ports = st.integers(1, 65535)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
resources = st.builds(
    Resources,
    cpus=st.floats(0.05, 512),
    memory_mib=st.integers(16, 2**40),
    disk_mib=st.integers(16, 2**40),
    pids=st.integers(8, 2**22),
)
seconds = st.none() | st.floats(1, 86400)
lifetimes = st.builds(
    Lifetime,
    timeout_s=seconds,
    on_timeout=st.sampled_from(OnTimeout),
    idle_timeout_s=seconds,
    archive_after_s=seconds,
    always_on=st.booleans(),
)
clocks = st.builds(
    Clockwork,
    active_at=moments,
    expires_at=maybe_moments,
    keep_alive_until=maybe_moments,
    stopped_at=maybe_moments,
)
wishes = st.builds(
    EgressWish,
    st.none() | st.sampled_from(NetworkMode),
    st.none() | lines,
    st.lists(any_text, max_size=2).map(tuple),
)
sandboxes = st.builds(
    SandboxRecord,
    id=st.builds(lambda: f"sbx_{new_ulid()}"),
    team_id=lines,
    name=lines,
    state=st.sampled_from(SandboxState),
    provider=lines,
    created_at=moments,
    changed_at=moments,
    clock=clocks,
    ref=lines,
    reason=st.none() | st.sampled_from(Reason),
    detail=any_text,
    template=any_text,
    resources=resources,
    labels=st.dictionaries(lines, lines, max_size=3),
    identity=lines,
    env=st.dictionaries(any_text, any_text, max_size=3),
    egress=wishes,
    ports=st.lists(ports, max_size=3).map(tuple),
    public_ports=st.frozensets(ports, max_size=3),
    lifetime=lifetimes,
    started_at=maybe_moments,
    version=st.integers(0, 2**31 - 2),
)
snapshots = st.builds(
    SnapshotRecord,
    id=st.builds(lambda: f"snp_{new_ulid()}"),
    team_id=lines,
    name=lines,
    provider=lines,
    created_at=moments,
    ref=lines,
    sandbox_id=lines,
    template=any_text,
    resources=resources,
    labels=st.dictionaries(any_text, any_text, max_size=3),
    env=st.dictionaries(any_text, any_text, max_size=3),
    ports=st.lists(ports, max_size=3).map(tuple),
    size_bytes=st.none() | st.integers(0, 2**70),
    automatic=st.booleans(),
    expires_at=maybe_moments,
)
tokens = st.builds(
    Token,
    id=st.builds(lambda: f"tok_{new_ulid()}"),
    team_id=lines,
    name=lines,
    role=st.sampled_from(Role),
    digest=lines,
    created_at=moments,
    scopes=st.none() | st.frozensets(st.sampled_from(Scope)),
    expires_at=maybe_moments,
    revoked_at=maybe_moments,
    used_at=maybe_moments,
)
events = st.builds(
    Event,
    team_id=lines,
    kind=st.sampled_from(EventKind),
    subject=lines,
    at=moments,
    data=st.dictionaries(any_text, json_values, max_size=3),
    actor=lines,
    seq=st.integers(1, 2**62),
)
