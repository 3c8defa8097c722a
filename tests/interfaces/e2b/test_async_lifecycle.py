"""The SDK's asynchronous half around sandboxes: lists, pauses, copies, templates and volumes."""

import asyncio
import time

import pytest
from e2b import (
    AsyncTemplate,
    BuildException,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
    VolumeException,
    VolumeNotFoundException,
)
from e2b.exceptions import VolumePathNotFoundException

from tests.interfaces.e2b.counting import COUNTER

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture
def sandboxes(live):
    return live.client().AsyncSandbox


@pytest.fixture
async def made(sandboxes):
    """Makes sandboxes that are gone afterwards."""
    boxes = []

    async def create(*words, **wish):
        boxes.append(await sandboxes.create(*words, **{"timeout": 60, **wish}))
        return boxes[-1]

    yield create
    for each in boxes:
        await sandboxes.kill(each.sandbox_id)


async def test_made_used_and_killed(sandboxes, made):
    box = await made(metadata={"who": "me"}, envs={"COLOUR": "green"})
    assert (await box.commands.run("echo $COLOUR; id -un; pwd")).stdout == (
        "green\nuser\n/home/user\n"
    )
    assert await box.is_running() is True
    assert (await box.get_info()).metadata == {"who": "me"}
    await box.set_timeout(120)
    assert (await box.get_info()).end_at.timestamp() - time.time() > 100
    assert await box.kill() is True
    assert await box.kill() is False
    assert await box.is_running() is False


async def test_lists_are_paged_ordered_and_filtered(sandboxes, made):
    of = {"of": f"async {time.time_ns()}"}
    first, second, third = [await made(metadata={**of, "n": str(n)}) for n in range(3)]

    async def ids(**options):
        pages, found = sandboxes.list(**options), []
        while pages.has_next:
            found.append([each.sandbox_id for each in await pages.next_items()])
        return found

    newest = [third.sandbox_id, second.sandbox_id, first.sandbox_id]
    mine = SandboxQuery(metadata=of)
    assert await ids(query=mine, limit=2) == [newest[:2], newest[2:]]
    assert await ids(query=mine, limit=1, order="asc") == [[each] for each in reversed(newest)]
    await second.pause()
    asleep = SandboxQuery(metadata=of, state=[SandboxState.PAUSED])
    assert await ids(query=asleep) == [[second.sandbox_id]]


async def test_a_pause_keeps_memory(sandboxes, made):
    box = await made()
    behind = await box.commands.run(COUNTER, background=True, stdin=True, timeout=0)
    await box.commands.send_stdin(behind.pid, "20\n")
    async with asyncio.timeout(10):
        while behind.stdout != "20\n":
            await asyncio.sleep(0.02)
    await behind.disconnect()
    assert await box.pause() is True
    assert (await sandboxes.get_info(box.sandbox_id)).state == SandboxState.PAUSED
    again = await sandboxes.connect(box.sandbox_id, timeout=60)
    counting = await again.commands.connect(behind.pid)
    await again.commands.send_stdin(behind.pid, "22\n")
    await again.commands.close_stdin(behind.pid)
    assert (await counting.wait()).stdout.endswith("42\n")


async def test_the_timeout_pauses_and_traffic_wakes(made):
    box = await made(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    await box.files.write("f.txt", "kept")
    async with asyncio.timeout(20):
        while (await box.get_info()).state != SandboxState.PAUSED:
            await asyncio.sleep(0.1)
    assert await box.files.read("f.txt") == "kept"


async def test_a_kill_ends_what_is_followed(sandboxes, made):
    box = await made()
    behind = await box.commands.run("sleep 60", background=True, timeout=0)
    assert await box.kill() is True
    with pytest.raises(TimeoutException, match="killed or reached its end of life"):
        await behind.wait()
    with pytest.raises(SandboxNotFoundException):
        await sandboxes.get_info(box.sandbox_id)


async def test_snapshots_are_taken_listed_used_and_deleted(sandboxes, made):
    box = await made()
    await box.files.write("f.txt", "then")
    snapshot = await box.create_snapshot(name=f"async-{time.time_ns()}")
    await box.files.write("f.txt", "now")
    listed = await sandboxes.list_snapshots(sandbox_id=box.sandbox_id).next_items()
    assert [each.snapshot_id for each in listed] == [snapshot.snapshot_id]
    copy = await made(snapshot.snapshot_id)
    assert await copy.files.read("f.txt") == "then"
    assert await box.files.read("f.txt") == "now"
    assert await sandboxes.delete_snapshot(snapshot.snapshot_id) is True
    assert await sandboxes.delete_snapshot(snapshot.snapshot_id) is False
    with pytest.raises(SandboxException, match="404"):
        await made(snapshot.snapshot_id)


async def test_forks_go_their_own_ways(sandboxes, made):
    box = await made()
    await box.files.write("f.txt", "same")
    forks = await sandboxes.fork(box.sandbox_id, count=2, timeout=60)
    try:
        await forks[0].files.write("f.txt", "other")
        assert await forks[1].files.read("f.txt") == "same"
        assert await box.files.read("f.txt") == "same"
    finally:
        for each in forks:
            await each.kill()


async def test_metrics_and_networks(made):
    box = await made(allow_internet_access=False)
    (now, *_) = await box.get_metrics()
    assert now.mem_total > now.mem_used > 0
    assert now.disk_total > now.disk_used > 0
    assert (await box.commands.run("ls /sys/class/net")).stdout == "lo\n"


async def test_a_template_is_built_from_code(live, made):
    client, name = live.client(), f"async-{time.time_ns()}"
    logs = []
    template = AsyncTemplate().from_base_image().run_cmd("echo said; echo made > ~/made.txt")
    await client.AsyncTemplate.build(template, name, on_build_logs=logs.append)
    assert "said" in [entry.message for entry in logs]
    box = await made(name)
    assert await box.files.read("made.txt") == "made\n"
    tags = await client.AsyncTemplate.assign_tags(f"{name}:default", ["stable"])
    assert tags.tags == ["stable"]
    found = await client.AsyncTemplate.get_tags(name)
    assert {each.tag for each in found} == {"default", "stable"}
    await client.AsyncTemplate.remove_tags(name, ["stable"])
    assert await client.AsyncTemplate.exists(name) is True
    with pytest.raises(SandboxException, match="404"):
        await made(f"{name}:stable")


async def test_a_build_goes_on_behind_and_one_that_fails_says_where(live):
    templates, name = live.client().AsyncTemplate, f"behind-{time.time_ns()}"
    info = await templates.build_in_background(
        AsyncTemplate().from_base_image().run_cmd("true"), name
    )
    async with asyncio.timeout(50):
        while (status := await templates.get_build_status(info)).status.value != "ready":
            assert status.status.value in ("waiting", "building")
            await asyncio.sleep(0.2)
    failing = AsyncTemplate().from_base_image().run_cmd("exit 7")
    with pytest.raises(BuildException, match="failed to run command 'exit 7': exit status 7"):
        await templates.build(failing, f"{name}-fails")


async def test_secrets_are_made_changed_listed_and_destroyed(live):
    secrets, name = live.client().AsyncSecret, f"async-{time.time_ns()}"
    made = await secrets.create(name, "hidden", metadata={"of": "billing"})
    assert (made.name, made.version) == (name, 1)
    assert (await secrets.update(name, "other")).version == 2
    assert (await secrets.get_info(name)).metadata == {"of": "billing"}
    pages, names = secrets.list(limit=1), []
    while pages.has_next:
        names += [each.name for each in await pages.next_items()]
    assert name in names
    assert await secrets.destroy(name) is True
    assert await secrets.destroy(name) is False


async def test_volumes_are_shared_and_outlive_sandboxes(live, made):
    there = {"api_url": live.url}  # the files of volumes have an address of their own
    volumes = live.client().AsyncVolume
    volume = await volumes.create(f"async-{time.time_ns()}")
    try:
        await volume.write_file("/in/a.txt", "from outside", force=True, **there)
        box = await made(volume_mounts={"/mnt/data": volume})
        assert await box.files.read("/mnt/data/in/a.txt") == "from outside"
        await box.commands.run("echo from inside > /mnt/data/b")
        assert await volume.read_file("/b", **there) == "from inside\n"
        with pytest.raises(VolumeException, match="is mounted by"):
            await volumes.destroy(volume.volume_id)
        await box.kill()
        assert [each.path for each in await volume.list("/", **there)] == ["/b", "/in"]
        assert (await volume.update_metadata("/b", mode=0o600, **there)).mode == 0o600
        assert (await volume.get_info("/b", **there)).mode == 0o600
        await volume.make_dir("/d", **there)
        await volume.remove("/in", **there)
        assert await volume.exists("/in/a.txt", **there) is False
        with pytest.raises(VolumePathNotFoundException):
            await volume.read_file("/in/a.txt", **there)
        assert volume.volume_id in {each.volume_id for each in await volumes.list()}
    finally:
        await volumes.destroy(volume.volume_id)
    with pytest.raises(VolumeNotFoundException):
        await volumes.connect(volume.volume_id)
