"""Volumes of a team on real sandboxes: `/v1/volumes`, the SDK, and what a restart finds."""

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.errors import Broken, Conflict
from paddock.domain.volume import VolumeState
from paddock.interfaces.client import AsyncSandbox, AsyncVolume, Server
from paddock.ports.clock import SystemClock
from paddock.ports.store import ANY_TEAM
from paddock.services.providers import Providers
from paddock.services.volumes import Volumes, VolumeWish
from paddock.testing.simulated import SimulatedProvider
from paddock.wiring.providers import layered
from tests.control_plane import disposable
from tests.engines import local_config

EVERY_DATABASE = True
pytestmark = [pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
async def plane(database):
    provider = await LocalProvider.open(local_config())
    await provider.prepare("base")
    async with disposable(provider=lambda _: layered(provider), database=database) as made:
        yield made


@pytest.fixture
async def server(plane):
    async with Server(plane.url, plane.admin.token) as made:
        yield made


@pytest.fixture
async def volume(server):
    made = await AsyncVolume.create("datasets", size_mib=64, server=server)
    yield made
    names = [each.name async for each in AsyncVolume.list(server=server)]
    if "datasets" in names:
        await made.delete(force=True)


async def test_one_is_made_mounted_and_deleted(plane, server, volume):
    info = await volume.info()
    assert (info.name, info.provider, info.state, info.size_mib) == (
        *("datasets", "local", "ready"),
        64,
    )
    assert info.mounted_by == ()
    mounts = {"/mnt/data": "datasets", "/mnt/same": "datasets:ro"}
    box = await AsyncSandbox.create(volumes=mounts, server=server)
    await box.commands.run("head -c 1048576 /dev/urandom > /mnt/data/f; sync /mnt/data/f")
    assert (await box.commands.run("stat -c %s /mnt/same/f; touch /mnt/same/g")).exit_code == 1
    shown = [(each.volume, each.path, each.read_only) for each in (await box.info()).volumes]
    assert shown == [("datasets", "/mnt/data", False), ("datasets", "/mnt/same", True)]
    info = await volume.info()
    assert info.used_bytes >= 1 << 20
    assert info.mounted_by == (box.name,)
    with pytest.raises(Conflict, match=f"mounted by {box.name}"):
        await volume.delete()
    await box.stop()
    with pytest.raises(Conflict, match="mounted by"):
        await volume.delete()
    await box.start()
    assert (await box.commands.run("stat -c %s /mnt/data/f")).stdout == "1048576\n"
    await box.kill()
    await volume.delete()
    assert [each.name async for each in AsyncVolume.list(server=server)] == []


async def test_deleted_by_force_its_sandboxes_go_on_without_it(server, volume):
    box = await AsyncSandbox.create(volumes={"/mnt/data": "datasets"}, server=server)
    await box.commands.run("echo x > /mnt/data/f; echo mine > own")
    await volume.delete(force=True)
    assert (await box.commands.run("ls /mnt/data; cat own")).stdout == "mine\n"
    await box.stop()
    await box.start()
    assert (await box.commands.run("cat own")).stdout == "mine\n"
    fork = await box.fork()
    assert (await fork.info()).volumes == ()
    await fork.kill()
    await box.kill()


async def test_what_was_done_is_told_and_written_down(plane, volume):
    await volume.delete()
    events = await plane.admin.get("/v1/events?limit=500")
    told = [each for each in events["items"] if each["subject"] == volume.id]
    assert [each["kind"] for each in told] == ["volume.created", "volume.deleted"]
    audit = await plane.admin.get("/v1/audit?limit=500")
    acts = [each["action"] for each in audit["items"] if each["subject"] == volume.id]
    assert acts == ["volume.create", "volume.delete"]


async def test_the_same_key_makes_one(plane):
    headers = {"idempotency-key": "one-volume"}
    wish = {"name": "once"}
    first = await plane.admin.post("/v1/volumes", wish, headers=headers)
    again = await plane.admin.post("/v1/volumes", wish, headers=headers)
    assert (first.status, again.status) == (201, 201)
    assert first["id"] == again["id"]
    taken = await plane.admin.post("/v1/volumes", wish)
    assert taken.status == 409
    assert (await plane.admin.delete("/v1/volumes/once")).status == 204
    assert (await plane.admin.delete("/v1/volumes/once")).status == 404
    gone = await plane.admin.post("/v1/volumes", wish, headers=headers)
    assert (gone.status, gone.error["code"]) == (409, "conflict"), "not a second one unawares"
    assert "key" in gone.error["remediation"]


async def test_another_team_has_none_of_it(plane, volume):
    other = await plane.team("volumes-elsewhere")
    assert (await other.get("/v1/volumes"))["items"] == []
    for method in ("GET", "DELETE"):
        assert (await other.call(method, f"/v1/volumes/{volume.id}")).status == 404
    wish = {"volumes": [{"volume": volume.id, "path": "/mnt/x"}]}
    assert (await other.post("/v1/sandboxes", wish)).status == 404
    assert (await other.post("/v1/volumes", {"name": "datasets"})).status == 201
    assert (await other.delete("/v1/volumes/datasets")).status == 204


async def test_who_may_only_look_makes_and_deletes_none(plane, volume):
    viewer = await plane.member(role="viewer")
    assert (await viewer.get(f"/v1/volumes/{volume.id}")).status == 200
    assert (await viewer.post("/v1/volumes", {"name": "mine"})).status == 403
    assert (await viewer.delete(f"/v1/volumes/{volume.id}")).status == 403


async def test_what_a_process_left_half_done_is_ended(plane, volume):
    """As it would be at the next start: what was not made whole goes, what was to go goes."""
    store, volumes = plane.services.store, plane.services.volumes
    for state in (VolumeState.DELETING, VolumeState.CREATING):
        half = await AsyncVolume.create(f"half-{state}", server=volume._server)

        def interrupted(tx, half=half, state=state):
            tx.volumes.set_state(half.id, state)

        await store.write(interrupted)
    await volumes.settle()
    left = await store.read(lambda tx: tx.volumes.unfinished(10))
    assert [each.name for each in left] == ["half-creating"], "it may still be under way"
    await store.write(lambda tx: tx.volumes.remove(left[0].id))
    await plane.services.providers.get("").delete_volume(left[0].id)
    assert await store.read(lambda tx: tx.volumes.get(ANY_TEAM, volume.id)) is not None


class FullDisk(SimulatedProvider):
    """Can keep volumes, and has no room for one."""

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        raise Broken("there is no room")


async def test_one_that_cannot_be_made_leaves_nothing(plane, tmp_path):
    full = FullDisk(tmp_path)
    volumes = Volumes(plane.services.store, SystemClock(), Providers({full.name: full}, full.name))
    admin = await plane.services.access.authenticate(plane.admin.token)
    with pytest.raises(Broken):
        await volumes.create(admin, VolumeWish("never"), "key-of-never")
    assert (await plane.admin.get("/v1/volumes"))["items"] == []
    with pytest.raises(Broken):  # the key is free again
        await volumes.create(admin, VolumeWish("never"), "key-of-never")
