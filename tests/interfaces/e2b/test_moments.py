"""What comes again, or while something else is under way: nothing is lost or doubled."""

import asyncio
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import SandboxException, SandboxState, Template, TimeoutException

pytestmark = [pytest.mark.timeout(180)]


def key() -> str:
    return f"key-{time.time_ns()}"


@pytest.fixture(scope="module")
def placed(e2b) -> str:
    """A template that leaves something to do in every sandbox."""
    name = f"placed-{time.time_ns()}"
    template = (
        Template().from_base_image().set_workdir("/srv/w").set_start_cmd("sleep 5555", "true")
    )
    e2b.Template.build(template, name)
    return name


def test_a_create_that_comes_again_leaves_what_is_its_clients_alone(e2b, placed):
    again = {"timeout": 120, "idempotency_key": key()}
    box = e2b.Sandbox.create(placed, **again)
    try:
        box.files.write("/home/user/precious", "kept")
        assert e2b.Sandbox.create(placed, **again).sandbox_id == box.sandbox_id
        assert box.commands.run("pgrep -c -x sleep").stdout == "1\n"
        box.pause()
        assert e2b.Sandbox.create(placed, **again).sandbox_id == box.sandbox_id
        assert box.get_info().state == SandboxState.PAUSED
        assert e2b.Sandbox.connect(box.sandbox_id).files.read("/home/user/precious") == "kept"
    finally:
        e2b.Sandbox.kill(box.sandbox_id)


def test_a_create_that_comes_again_after_the_end_is_refused(e2b):
    again = {"timeout": 60, "idempotency_key": key()}
    e2b.Sandbox.create(**again).kill()
    with pytest.raises(SandboxException, match="deleted since"):
        e2b.Sandbox.create(**again)


def test_traffic_does_not_boot_what_was_put_away_without_its_memory(e2b, placed):
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    box = e2b.Sandbox.create(placed, timeout=120, lifecycle=lifecycle)
    try:
        box.pause(mode="filesystem")
        with pytest.raises(TimeoutException):
            box.commands.run("true")
        assert box.get_info().state == SandboxState.PAUSED
        again = e2b.Sandbox.connect(box.sandbox_id)
        assert again.commands.run("pwd; pgrep -c -x sleep").stdout == "/srv/w\n1\n"
    finally:
        e2b.Sandbox.kill(box.sandbox_id)


def test_a_signed_address_wakes_what_traffic_wakes(e2b):
    box = e2b.Sandbox.create(timeout=120, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        box.files.write("f.txt", "kept")
        url = box.download_url("f.txt")
        box.pause()
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == b"kept"
    finally:
        e2b.Sandbox.kill(box.sandbox_id)


async def held(live, identifier: str, under_way) -> None:
    """The sandbox's lock is held until `under_way` says that all wait for it."""
    changes = live.plane.services.sandboxes._changes
    async with changes.alone(identifier):
        await under_way(changes._locks[identifier])


def test_who_connects_during_a_pause_has_one_that_runs(live, e2b):
    box = e2b.Sandbox.create(timeout=120)
    identifier = box.sandbox_id.replace("sbx", "sbx_", 1)

    with ThreadPoolExecutor(2) as aside:
        asked = []

        async def both(lock) -> None:
            asked.append(aside.submit(box.pause))
            while lock.wanted_by < 2:
                await asyncio.sleep(0.01)
            asked.append(aside.submit(e2b.Sandbox.connect, box.sandbox_id, timeout=120))
            while lock.wanted_by < 3 and not asked[1].done():
                await asyncio.sleep(0.01)

        live.do(held(live, identifier, both))
        try:
            assert asked[0].result(60) is True
            assert asked[1].result(60).commands.run("echo in").stdout == "in\n"
        finally:
            box.kill()


def test_forks_are_copies_of_one_moment(e2b):
    box = e2b.Sandbox.create(timeout=120)
    boxes = [box]
    try:
        count = "i=0; while :; do i=$((i+1)); echo $i > n.tmp; mv n.tmp n; done"
        box.commands.run(count, background=True, timeout=0)
        while not box.files.exists("n"):
            time.sleep(0.05)
        boxes += e2b.Sandbox.fork(box.sandbox_id, timeout=120, count=3)
        assert len({each.files.read("n") for each in boxes[1:]}) == 1
    finally:
        for each in boxes:
            e2b.Sandbox.kill(each.sandbox_id)
