"""A process that is killed between any two steps leaves nothing that the next one stumbles over."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import Storage, open_storage

from .conftest import OWNER
from .disks import attached_images, unmounted_afterwards
from .killing import killed_at


def test_creating_may_be_killed_at_every_step(storage: Storage) -> None:
    volumes = storage.pool / "volumes"
    step = 1
    while killed_at(step, partial(storage.create, volumes / f"v{step}", OWNER)):
        storage.sweep()
        assert [entry.name for entry in volumes.iterdir()] == [], f"after step {step}"
        step += 1
    assert step > 5
    assert sorted(entry.name for entry in volumes.iterdir()) == [f"v{step}"]


def test_cloning_may_be_killed_at_every_step(storage: Storage, volume: Path) -> None:
    for number in range(20):
        (volume / "upper" / f"{number}").write_text("content")
    (volume / "work" / "work").mkdir()
    step = 1
    while killed_at(step, partial(storage.clone, volume, volume.with_name(f"v{step}"))):
        storage.sweep()
        assert [entry.name for entry in volume.parent.iterdir()] == ["one"], f"after step {step}"
        step += 1
    assert step > 3
    assert len(list((volume.parent / f"v{step}" / "upper").iterdir())) == 20


def test_deleting_may_be_killed_at_every_step(storage: Storage) -> None:
    step, killed = 1, True
    while killed:
        volume = storage.pool / "volumes" / f"v{step}"
        storage.create(volume, OWNER)
        (volume / "upper" / "file").write_text("")
        killed = killed_at(step, partial(storage.delete, volume))
        storage.sweep()
        if volume.exists():  # not begun: then it is whole, and can be deleted
            assert (volume / "upper" / "file").exists(), f"after step {step}"
            storage.delete(volume)
        assert list(volume.parent.iterdir()) == [], f"after step {step}"
        step += 1
    assert step > 3


def test_a_volume_that_a_living_process_builds_is_not_swept(storage: Storage) -> None:
    started, go_on = os.pipe(), os.pipe()
    target = storage.pool / "volumes" / "slow"
    child = os.fork()
    if child == 0:

        def pause(event: str, arguments: tuple[object, ...]) -> None:
            if event == "os.rename":
                os.write(started[1], b"x")
                os.read(go_on[0], 1)

        sys.addaudithook(pause)
        storage.create(target, OWNER)
        os._exit(0)
    os.read(started[0], 1)
    assert storage.sweep() == []
    os.write(go_on[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert (target / "upper").is_dir()
    for end in (*started, *go_on):
        os.close(end)


def test_names_that_are_not_ours_are_not_swept(storage: Storage) -> None:
    foreign = storage.pool / "volumes" / ".tmp-of-somebody-else"
    foreign.mkdir()
    assert storage.sweep() == []
    assert foreign.is_dir()


def test_what_a_former_run_of_the_kernel_left_is_swept(storage: Storage) -> None:
    left = storage.pool / "volumes" / f".tmp-{os.getpid()}-1-00000000-cafecafe"
    left.mkdir()
    assert storage.sweep() == [left]
    assert not left.exists()


@pytest.mark.timeout(300)
def test_opening_may_be_killed_at_every_step(tmp_path: Path) -> None:
    step, killed = 1, True
    while killed:
        data_dir = tmp_path / f"data{step}"
        with unmounted_afterwards(data_dir):
            killed = killed_at(step, partial(open_storage, data_dir, pool_size_mib=300))
            storage = open_storage(data_dir, pool_size_mib=300)
            assert storage.name == "btrfs", storage.notes
            assert len([i for i in attached_images() if i == str(data_dir / "pool.img")]) == 1
            left = {entry.name for entry in data_dir.iterdir()}
            assert left == {"pool", "pool.img", "pool.lock"}, f"after step {step}"
            storage.create(storage.pool / "volumes" / "one", OWNER)
        (data_dir / "pool.img").unlink()
        step += 3
    assert step > 20
