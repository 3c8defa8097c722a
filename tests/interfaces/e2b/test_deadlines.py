"""What happens at a sandbox's deadline, by the unmodified SDK."""

import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import SandboxState
from e2b.exceptions import SandboxNotRunningException

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


SLOW_SERVER = """python3 -c '
import http.server, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"held")
http.server.ThreadingHTTPServer(("", 8000), Slow).serve_forever()'"""


def asked(live, box) -> bytes:
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000"}
    with urllib.request.urlopen(urllib.request.Request(live.url, None, headers), timeout=20) as got:
        return got.read()


def test_a_request_in_flight_during_a_pause_wakes_a_sandbox_with_auto_resume(live, e2b):
    box = e2b.Sandbox.create(timeout=120, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        box.commands.run(SLOW_SERVER, background=True, timeout=0)
        box.commands.run("until (echo > /dev/tcp/localhost/8000); do sleep 0.05; done")
        with ThreadPoolExecutor(2) as aside:
            answer = aside.submit(asked, live, box)
            time.sleep(0.3)
            box.pause()
            assert answer.result(20) == b"held"
            assert box.get_info().state == SandboxState.RUNNING
            written = aside.submit(lambda: [box.files.write("f", str(n)) for n in range(60)])
            for _ in range(3):
                box.pause()
                time.sleep(0.1)
            assert len(written.result(30)) == 60
    finally:
        e2b.Sandbox.kill(box.sandbox_id)


def test_a_command_whose_sandbox_is_killed_says_so(e2b):
    box = e2b.Sandbox.create(timeout=60)
    running = box.commands.run("echo up; sleep 60", background=True, timeout=0)
    box.kill()
    with pytest.raises(SandboxNotRunningException, match="killed or reached its end of life"):
        running.wait()
