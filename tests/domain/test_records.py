"""Sandboxes as the control plane keeps them."""

import pytest

from paddock.domain.errors import Conflict, InvalidRequest
from paddock.domain.event import EventKind
from paddock.domain.ids import dns_label
from paddock.domain.lifetime import Clockwork, Lifetime
from paddock.domain.reason import Reason
from paddock.domain.records import SandboxRecord, check_name, check_snapshot_name, event_of, moved
from paddock.domain.sandbox import SandboxState

S = SandboxState
AN_ID = f"sbx_{'0' * 26}"


def record(state: SandboxState = S.CREATING, **more: object) -> SandboxRecord:
    values: dict[str, object] = {"clock": Clockwork(active_at=1.0), **more}
    return SandboxRecord(
        "sbx_1",
        "tem_1",
        "box",
        state,
        "local",
        1.0,
        1.0,
        **values,  # type: ignore[arg-type]
    )


def test_a_start_winds_the_clock_and_a_stop_lets_it_run_down():
    running = moved(record(lifetime=Lifetime(timeout_s=60)), S.RUNNING, 100.0)
    assert running.clock == Clockwork(active_at=100.0, expires_at=160.0)
    assert running.started_at == 100.0
    stopped = moved(running, S.STOPPED, 130.0, reason=Reason.IDLE, detail="nothing ran for 15 min")
    assert stopped.clock == Clockwork(active_at=100.0, stopped_at=130.0)
    assert (stopped.reason, stopped.detail) == (Reason.IDLE, "nothing ran for 15 min")
    again = moved(stopped, S.RUNNING, 200.0)
    assert (again.reason, again.detail, again.clock.stopped_at) == (None, "", None)


def test_an_impossible_move_is_a_conflict_that_names_the_sandbox():
    with pytest.raises(Conflict, match="sandbox box is deleted"):
        moved(record(S.DELETED), S.RUNNING, 2.0)


@pytest.mark.parametrize("state", S)
def test_every_state_has_its_event(state):
    event = event_of(record(state, reason=Reason.OOM, detail="1 GiB"), "tok_1")
    assert event.kind is EventKind(f"sandbox.{state}")
    assert event.data == {"state": state, "name": "box", "reason": "oom", "detail": "1 GiB"}
    assert event_of(record(state, app="shop"), "tok_1").data["app"] == "shop"


@pytest.mark.proves("C6")
@pytest.mark.parametrize("name", ["a", "a-b", "9", "x" * 63, "sbx-1"])
def test_a_name_that_fits_a_host_name_is_taken(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["a_b", "_a", "before_refactor-2", "x" * 63])
def test_a_snapshots_name_may_have_an_underscore(name):
    assert check_snapshot_name(name) == name
    for other in ("", "-a", "a-", "A", "a.b", "a b", AN_ID):
        with pytest.raises(InvalidRequest):
            check_snapshot_name(other)


@pytest.mark.proves("C6")
@pytest.mark.parametrize(
    "name",
    ["", "-a", "a-", "A", "a_b", "a.b", "x" * 64, "a b"],
)
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(InvalidRequest, match="is not usable"):
        check_name(name)


@pytest.mark.proves("C6")
@pytest.mark.parametrize("name", [AN_ID, dns_label(AN_ID), "abc-" + 26 * "x"])
def test_a_name_that_looks_like_an_id_is_refused_for_that(name):
    with pytest.raises(InvalidRequest, match="looks like an id") as refused:
        check_name(name)
    assert "not three letters" in refused.value.remediation
