"""What goes wrong around a cell comes out as the SDK's own exceptions, in both halves."""

import asyncio
import re
import time

import httpx
import pytest
from e2b import SandboxException, SandboxNotFoundException, TimeoutException
from e2b.connection_config import ConnectionConfig
from packaging.version import Version

from tests.interfaces.e2b.halves import done, way_to
from tests.interfaces.e2b.patient import AsyncPatient, Patient

pytestmark = [pytest.mark.timeout(900)]
# The first run on a machine builds the template.
GONE = "was not found.*likely due to sandbox timeout"
KILLED = "The sandbox was killed while the request was in progress"
SLOW = "import time; print('begun', flush=True); time.sleep(60)"


@pytest.fixture(
    params=[
        pytest.param(Patient, id="sync"),
        pytest.param(AsyncPatient, id="async", marks=pytest.mark.slow),
    ]
)
def sandboxes(request, live, interpreter):
    return request.param


@pytest.fixture
async def box(sandboxes, live):
    made = await done(sandboxes.create(timeout=120, **live.options))
    yield made
    await done(sandboxes.kill(made.sandbox_id, **live.options))


async def run(box, code, **options):
    """Beside what else there is to do."""
    if isinstance(box, AsyncPatient):
        return await box.run_code(code, **options)
    return await asyncio.to_thread(box.run_code, code, **options)


async def begun(box):
    """A cell that goes on for long, and has said something."""
    heard = []
    running = asyncio.ensure_future(
        run(box, SLOW, on_stdout=lambda said: heard.append(said.line), timeout=60)
    )
    async with asyncio.timeout(30):
        while not heard:
            await asyncio.sleep(0.05)
    return running


async def test_one_that_was_killed(box):
    context = await done(box.create_code_context())
    await done(box.kill())
    for call in (
        lambda: box.run_code("1"),
        lambda: box.run_code("1", context=context),
        box.create_code_context,
        box.list_code_contexts,
        lambda: box.restart_code_context(context),
        lambda: box.remove_code_context(context),
    ):
        with pytest.raises(TimeoutException, match=GONE):
            await done(call())


async def test_one_that_is_paused_and_woken(box):
    await run(box, "x = 42")
    await done(box.pause())
    with pytest.raises(TimeoutException, match=GONE):
        await run(box, "x")
    await done(box.connect(timeout=120))
    assert (await run(box, "x")).text == "42"


@pytest.mark.parametrize("verb", ["kill", "pause"])
async def test_what_ends_a_sandbox_ends_the_cell_that_is_followed(box, verb):
    running = await begun(box)
    await done(getattr(box, verb)())
    async with asyncio.timeout(25):
        with pytest.raises(TimeoutException, match=KILLED):
            await running


async def test_time_that_is_used_up_ends_the_cell_that_is_followed(box, sandboxes, live):
    running = await begun(box)
    await done(box.set_timeout(1))
    with pytest.raises(TimeoutException, match=KILLED):
        await running
    with pytest.raises(SandboxNotFoundException):
        await done(sandboxes.connect(box.sandbox_id, **live.options))


async def test_a_cell_that_takes_too_long(box):
    with pytest.raises(TimeoutException, match=re.escape("the 'timeout' option can be used")):
        await run(box, SLOW, timeout=1)


async def test_a_connection_that_is_cut_is_not_said_to_be_the_sandboxs_end(box, sandboxes, live):
    with way_to(live) as way:
        there = {**live.options, "sandbox_url": f"http://127.0.0.1:{way.port}"}
        behind = await done(sandboxes.connect(box.sandbox_id, **there))
        running = await begun(behind)
        live.loop.call_soon_threadsafe(way.shut)
        # The SDK asks whether the sandbox runs; where nobody answers it hands on what broke.
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await running
    assert await done(box.is_running()) is True
    assert (await run(box, "1 + 1")).text == "2"


async def test_who_has_no_token_of_the_sandbox_runs_nothing(box, sandboxes, live):
    other = live.do(live.plane.team(f"cells-{time.time_ns()}"))
    theirs = {**live.options, "api_key": other.token}
    with pytest.raises(SandboxNotFoundException, match=box.sandbox_id):
        await done(sandboxes.connect(box.sandbox_id, **theirs))
    config = ConnectionConfig(**live.options)
    for token in ("wrong", None):
        stranger = sandboxes(
            sandbox_id=box.sandbox_id,
            sandbox_domain=None,
            envd_version=Version("0.6.13"),
            envd_access_token=token,
            traffic_access_token=None,
            connection_config=config,
        )
        with pytest.raises(SandboxException, match="403"):
            await run(stranger, "1")


@pytest.mark.slow
async def test_an_interpreter_that_cannot_start_is_told_as_soon_as_it_ends(box, sandboxes, live):
    """Its kernel, here, which is no longer installed."""
    await done(box.commands.run("mv /usr/lib/python3/dist-packages/ipykernel /tmp", user="root"))
    await done(box.pause(mode="filesystem"))
    with pytest.raises(SandboxException, match=r"interpreter of sandbox .* ended with exit code 1"):
        await done(sandboxes.connect(box.sandbox_id, **live.options))
