"""What happens at a sandbox's deadline, by the unmodified SDK."""

import time
from collections.abc import Iterator

import pytest
from e2b import SandboxState

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture
def rare_looks(live) -> Iterator[None]:
    """The reaper does not look at all sandboxes while a test lasts."""
    reaper = live.plane.rounds.reaper
    before, reaper.every_s = reaper.every_s, 30.0
    time.sleep(2 * before)
    yield
    reaper.every_s = before


def lateness(live, e2b) -> float:
    """How long after its deadline a sandbox is paused."""
    box = e2b.Sandbox.create(timeout=1, lifecycle={"on_timeout": "pause"})
    try:
        ends = box.get_info().end_at.timestamp()
        give_up = time.monotonic() + 10
        while box.get_info().state is not SandboxState.PAUSED:
            assert time.monotonic() < give_up, "it was not paused"
            time.sleep(0.02)
        return live.do(_changed_at(live, box.sandbox_id)) - ends
    finally:
        e2b.Sandbox.kill(box.sandbox_id)


async def _changed_at(live, identifier: str) -> float:
    record = await live.plane.services.e2b.passages.find(identifier.replace("sbx", "sbx_", 1))
    return record.changed_at


def test_a_sandbox_is_paused_within_half_a_second_of_its_deadline(live, e2b, rare_looks):
    found = [lateness(live, e2b) for _ in range(2)]
    assert 0 <= min(found) <= 0.5, found
