"""What goes wrong comes out as the SDK's own exceptions with the right words, in both halves."""

import time

import pytest
from e2b import (
    AuthenticationException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    TimeoutException,
)
from e2b.connection_config import ConnectionConfig
from e2b.exceptions import (
    FileNotFoundException,
    SandboxNotRunningException,
    SandboxUnreachableException,
)
from packaging.version import Version

from paddock.settings import ServerConfig
from tests.interfaces.e2b.halves import Half, done, way_to

pytestmark = [pytest.mark.timeout(60)]
OVER = "killed or reached its end of life|was not found|not running anymore"


@pytest.fixture(params=["sync", pytest.param("async", marks=pytest.mark.slow)])
def half(live, request):
    return Half(live, request.param)


@pytest.fixture
async def box(half):
    made = await half.make()
    yield made
    await done(half.sandboxes().kill(made.sandbox_id))


async def test_one_that_was_killed(half, box):
    await done(box.kill())
    for call in (
        lambda: box.commands.run("true"),
        box.commands.list,
        lambda: box.files.read("f"),
        lambda: box.files.write("f", ""),
        lambda: box.files.list("/"),
    ):
        with pytest.raises(SandboxNotRunningException, match=OVER):
            await done(call())
    for call in (
        box.get_info,
        lambda: box.set_timeout(5),
        box.pause,
        box.get_metrics,
        box.create_snapshot,
        lambda: half.sandboxes().connect(box.sandbox_id),
        lambda: half.sandboxes().fork(box.sandbox_id),
        lambda: half.sandboxes().update_network(box.sandbox_id, {"allow_out": []}),
    ):
        with pytest.raises(SandboxNotFoundException, match=box.sandbox_id):
            await done(call())
    assert await done(box.kill()) is False
    assert await done(box.is_running()) is False


async def test_one_that_is_paused(half, box):
    assert await done(box.pause()) is True
    assert await done(box.pause()) is False
    with pytest.raises(SandboxNotRunningException, match=OVER):
        await done(box.commands.run("true"))
    with pytest.raises(SandboxNotRunningException, match=OVER):
        await done(box.files.read("f"))
    with pytest.raises(SandboxNotFoundException):
        await done(box.set_timeout(60))
    again = await done(half.sandboxes().connect(box.sandbox_id, timeout=60))
    assert (await done(again.commands.run("echo on"))).stdout == "on\n"


async def test_one_of_another_team(half, box):
    token = (half.live.do(half.live.plane.team(f"errors-{time.time_ns()}"))).token
    theirs = half.sandboxes(api_key=token)
    for call in (theirs.get_info, theirs.connect, theirs.pause, theirs.create_snapshot):
        with pytest.raises(SandboxNotFoundException, match=box.sandbox_id):
            await done(call(box.sandbox_id))
    assert await done(theirs.kill(box.sandbox_id)) is False


async def test_a_wrong_key(half, box):
    for key in ("e2b_" + "0" * 40, "nonsense"):
        wrong = half.sandboxes(api_key=key)
        for call in (lambda w=wrong: w.create(), lambda w=wrong: w.connect(box.sandbox_id)):
            with pytest.raises(AuthenticationException, match="token"):
                await done(call())


async def test_a_wrong_token_of_a_sandbox(half, box):
    other = await done(half.sandboxes().connect(box.sandbox_id))
    wrong = ConnectionConfig(
        api_key=half.live.key,
        api_url=half.live.url,
        sandbox_url=half.live.url,
        extra_sandbox_headers={
            **other.connection_config.sandbox_headers,
            "X-Access-Token": "wrong",
        },
    )
    lost = type(other)(
        sandbox_id=box.sandbox_id,
        sandbox_domain=None,
        envd_version=Version("0.6.13"),
        envd_access_token="wrong",
        traffic_access_token=None,
        connection_config=wrong,
    )
    with pytest.raises(AuthenticationException, match="does not match"):
        await done(lost.commands.run("true"))
    with pytest.raises(AuthenticationException, match="does not match"):
        await done(lost.files.read("/etc/hostname"))


async def test_time_that_is_used_up(half):
    box = await half.make(timeout=1)
    behind = await done(box.commands.run("sleep 60", background=True, timeout=0))
    with pytest.raises(SandboxNotRunningException, match="killed or reached its end of life"):
        await done(behind.wait())
    with pytest.raises(SandboxNotRunningException, match=OVER):
        await done(box.commands.run("true"))
    with pytest.raises(SandboxNotFoundException):
        await done(box.get_info())


async def test_a_commands_time_and_a_requests(half, box):
    with pytest.raises(TimeoutException, match="timeout"):
        await done(box.commands.run("sleep 30", timeout=0.5))
    with pytest.raises(TimeoutException):
        await done(box.files.list("/", request_timeout=0.0001))


async def test_a_connection_that_is_cut_while_the_sandbox_lives(half, box):
    with way_to(half.live) as way:
        url = f"http://127.0.0.1:{way.port}"
        way.cut_after = [1500] * 3
        there = await done(half.sandboxes(sandbox_url=url).connect(box.sandbox_id))
        with pytest.raises(SandboxUnreachableException):
            await done(there.commands.run("while :; do echo much; sleep 0.01; done", timeout=20))
    assert await done(box.is_running()) is True


async def test_a_server_that_is_gone(half, box):
    with way_to(half.live) as way:
        url = f"http://127.0.0.1:{way.port}"
        there = await done(half.sandboxes(sandbox_url=url).connect(box.sandbox_id))
    with pytest.raises(SandboxUnreachableException):
        await done(there.commands.run("true"))


async def test_what_is_asked_for_wrongly(half, box):
    with pytest.raises(FileNotFoundException, match=r"gone\.txt"):
        await done(box.files.read("gone.txt"))
    with pytest.raises(InvalidArgumentException):
        await done(box.files.read("/etc"))
    with pytest.raises(InvalidArgumentException):
        await done(box.commands.run("true", cwd="/nowhere"))
    with pytest.raises(AuthenticationException, match="nobody-here"):
        await done(box.commands.run("true", user="nobody-here"))
    with pytest.raises(AuthenticationException, match="nobody-here"):
        await done(box.files.read("f", user="nobody-here"))
    with pytest.raises(SandboxException, match=r"no template|404"):
        await half.make("no-such-template")
    with pytest.raises(InvalidArgumentException):
        await done(box.files.list("/etc/hostname"))


async def test_a_disk_that_is_full(half, box):
    await done(box.commands.run("fallocate -l 200M /dev/shm/x || true"))
    with pytest.raises(NotEnoughSpaceException):
        await done(box.files.write("/dev/shm/more", b"x" * (300 << 20)))


async def test_too_many_requests(half):
    """The SDK tries again by itself; what is left then has its own type."""
    token = half.live.do(half.live.plane.team(f"rate-{time.time_ns()}")).token
    theirs = half.sandboxes(api_key=token, retries=0)
    rate, usual = half.live.plane.services.rate, ServerConfig()
    rate.change(per_second=0.001, burst=1)
    try:
        with pytest.raises(SandboxNotFoundException):
            await done(theirs.get_info("nothing"))
        with pytest.raises(RateLimitException, match="too many requests"):
            await done(theirs.get_info("nothing"))
    finally:
        rate.change(usual.requests_per_second, usual.requests_burst)
