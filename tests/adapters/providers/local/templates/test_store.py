"""Recipes, builds, and what happens between them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from paddock.adapters.providers.local.storage import Storage, open_storage
from paddock.adapters.providers.local.storage.btrfs import is_subvolume
from paddock.adapters.providers.local.templates import SnapshotParts, TemplateStore
from paddock.adapters.providers.local.templates.defaults import Defaults
from paddock.domain.errors import (
    Broken,
    Conflict,
    InvalidRequest,
    NotFound,
    Refused,
    Unsupported,
)
from paddock.domain.template import SourceKind, Template, TemplateSource

from ..storage.disks import unmounted_afterwards
from ..storage.killing import killed_at
from .conftest import OWNER, RecordingRunner, from_directory, left_over, make_tree, no_setup


class Progress:
    """What was reported."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.fractions: list[float] = []

    def __call__(self, text: str, fraction: float | None) -> None:
        self.texts.append(text)
        if fraction is not None:
            self.fractions.append(fraction)


async def test_a_directory_becomes_a_root_file_system(store: TemplateStore, tree: Path) -> None:
    progress = Progress()
    build = await store.ensure(from_directory(tree), progress=progress, setup_runner=no_setup)
    tool, same = build.lower / "usr/bin/tool", build.lower / "usr/bin/same"
    assert tool.stat().st_mode & 0o7777 == 0o4755
    assert tool.stat().st_ino == same.stat().st_ino
    assert (build.lower / "etc/mtab").readlink() == Path("/proc/mounts")
    assert ((build.lower / "usr/lib").stat().st_uid, (build.lower / "usr/lib").stat().st_gid) == (
        33,
        44,
    )
    assert "user:x:1000:1000:" in (build.lower / "etc/passwd").read_text()
    assert build.seed is None
    assert build.root == build.digest
    assert progress.fractions[-1] == 1.0
    assert not (tree / "home").exists(), "the source is not touched"


@pytest.mark.proves("P11")
async def test_a_template_is_built_once(store: TemplateStore, tree: Path) -> None:
    first = await store.ensure(from_directory(tree), setup_runner=no_setup)
    progress = Progress()
    again = await store.ensure(from_directory(tree), progress=progress, setup_runner=no_setup)
    assert again == first
    assert progress.texts == []
    other_name = from_directory(tree, name="other")
    assert (await store.ensure(other_name, setup_runner=no_setup)).digest == first.digest
    assert store.builds() == [first]
    assert store.get(first.digest) == first


async def test_a_new_process_finds_what_was_built(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    first = await store.ensure(from_directory(tree), setup_runner=no_setup)
    progress = Progress()
    second = TemplateStore(storage, storage.pool.parent)
    found = await second.ensure(from_directory(tree), progress=progress, setup_runner=no_setup)
    assert found == first
    assert progress.texts == []


async def test_a_changed_source_is_picked_up_when_its_recipe_is_added_again(
    store: TemplateStore, tree: Path
) -> None:
    store.add(from_directory(tree))
    first = await store.ensure(store.recipe("small"), setup_runner=no_setup)
    (tree / "etc/new").write_text("")
    assert await store.ensure(store.recipe("small"), setup_runner=no_setup) == first
    store.add(from_directory(tree))
    second = await store.ensure(store.recipe("small"), setup_runner=no_setup)
    assert second.digest != first.digest
    assert (second.lower / "etc/new").exists()
    assert not (first.lower / "etc/new").exists()


async def test_what_snapshots_leave_out_is_no_reason_to_look_at_the_source(
    store: TemplateStore, tree: Path
) -> None:
    store.add(from_directory(tree))
    first = await store.ensure(store.recipe("small"), setup_runner=no_setup)
    (tree / "etc/new").write_text("")
    store.add(replace(store.recipe("small"), snapshot_ignore=("/var/cache/apt",)))
    assert store.recipe("small").snapshot_ignore == ("/var/cache/apt",)
    assert store.built(store.recipe("small")) == first
    store.add(replace(store.recipe("small"), hardened=True))
    second = await store.ensure(store.recipe("small"), setup_runner=no_setup)
    assert second.digest != first.digest, "what else is added anew is looked at anew"


async def test_a_build_that_was_removed_by_hand_is_made_again(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    first = await store.ensure(from_directory(tree), setup_runner=no_setup)
    storage.delete(first.lower.parent)
    again = await store.ensure(from_directory(tree), setup_runner=no_setup)
    assert again.digest == first.digest
    storage.delete(first.lower)
    await store.ensure(from_directory(tree), setup_runner=no_setup)
    assert first.lower.is_dir()

    template = from_directory(tree, setup=("make",))
    build = await store.ensure(template, setup_runner=RecordingRunner(storage))
    assert build.seed
    storage.delete(build.seed)
    again = await TemplateStore(storage, storage.pool.parent).ensure(
        template, setup_runner=RecordingRunner(storage)
    )
    assert again.seed
    assert (again.seed / "upper/done").exists()


async def test_set_up_commands_make_a_seed_over_the_same_root(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    plain = await store.ensure(from_directory(tree), setup_runner=no_setup)
    runner = RecordingRunner(storage)
    template = from_directory(tree, "set-up", ("apt-get install x", "make"))
    build = await store.ensure(template, setup_runner=runner)
    assert runner.calls == [(plain.lower, None, ("apt-get install x", "make"))]
    assert build.lower == plain.lower
    assert build.digest != plain.digest
    assert build.seed is not None
    assert (build.seed / "upper" / "done").read_text() == "apt-get install x\nmake"
    assert list((build.seed / "guest").iterdir()) == []
    assert list((build.seed / "work").iterdir()) == []
    assert is_subvolume(build.seed) is (storage.name == "btrfs")
    assert left_over(storage) == []
    await store.ensure(template, setup_runner=no_setup)


@pytest.mark.proves("P11")
async def test_a_set_up_that_fails_says_so_leaves_nothing_and_can_be_tried_again(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    async def failing(_lower: Path, _seed: Path | None, commands: Sequence[str]) -> Path:
        raise Refused(f"set-up command {commands[1]!r} ended with 2", remediation="line 1\nline 2")

    template = from_directory(tree, "set-up", ("true", "exit 2"))
    with pytest.raises(Refused, match="exit 2"):
        await store.ensure(template, setup_runner=failing)
    assert left_over(storage) == []
    assert len(store.builds()) == 1, "the root alone, which is whole"
    runner = RecordingRunner(storage)
    await store.ensure(template, setup_runner=runner)
    assert len(runner.calls) == 1


async def test_a_build_that_is_cancelled_leaves_nothing(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    started = asyncio.Event()

    async def endless(_lower: Path, _seed: Path | None, _commands: Sequence[str]) -> Path:
        started.set()
        await asyncio.sleep(60)
        raise AssertionError

    template = from_directory(tree, "set-up", ("sleep 60",))
    task = asyncio.create_task(store.ensure(template, setup_runner=endless))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_over(storage) == []
    await store.ensure(template, setup_runner=RecordingRunner(storage))


async def test_tasks_that_ask_at_once_build_once(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    runner = RecordingRunner(storage)
    template = from_directory(tree, "set-up", ("make",))
    builds = await asyncio.gather(*(store.ensure(template, setup_runner=runner) for _ in range(8)))
    assert len(runner.calls) == 1
    assert len({build.digest for build in builds}) == 1


ENSURE = """
import asyncio, sys
from pathlib import Path
from paddock.adapters.providers.local.storage import open_storage
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.domain.template import SourceKind, Template, TemplateSource

async def slowly(lower, seed, commands):
    print("set-up", flush=True)
    await asyncio.sleep(1)
    volume = storage.pool / "volumes" / ".setup"
    storage.create(volume, 100000)
    return volume

data_dir, tree, driver = sys.argv[1:]
storage = open_storage(Path(data_dir), driver=driver, pool_size_mib=300)
store = TemplateStore(storage, Path(data_dir))
template = Template("t", TemplateSource(SourceKind.DIRECTORY, tree), ("make",))
said = set()
build = asyncio.run(store.ensure(
    template, progress=lambda text, fraction: said.add(text), setup_runner=slowly
))
print("waited" if "another process builds it" in said else "built", flush=True)
"""


def test_processes_that_ask_at_once_build_once(storage: Storage, driver: str, tree: Path) -> None:
    command = [sys.executable, "-c", ENSURE, str(storage.pool.parent), str(tree), driver]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert [code for _, _, code in results] == [0, 0, 0], results
    said = sorted(line for out, _, _ in results for line in out.split())
    assert said == ["built", "set-up", "waited", "waited"]


@pytest.mark.parametrize("first", [1, 4, 7])
def test_building_may_be_killed_at_any_step(storage: Storage, tmp_path: Path, first: int) -> None:
    """Each time the next process finds either nothing or the whole, and finishes."""

    def build(template: Template) -> None:
        store, runner = TemplateStore(storage, storage.pool.parent), RecordingRunner(storage)
        built = asyncio.run(store.ensure(template, setup_runner=runner))
        assert built.seed
        assert (built.lower / "usr/bin/tool").exists()
        assert (built.seed / "upper/done").read_text() == "make"

    step, killed = first, True
    while killed:
        template = from_directory(make_tree(tmp_path / f"tree{step}"), setup=("make",))
        killed = killed_at(step, partial(build, template))
        for volume in (storage.pool / "volumes").iterdir():  # the provider's to sweep
            storage.delete(volume)
        build(template)
        assert left_over(storage) == [], f"after step {step}"
        step += 9
    assert step > 50


async def test_a_template_stands_on_a_snapshot(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    root = await store.ensure(from_directory(tree), setup_runner=no_setup)
    volume = storage.pool / "snapshots" / "snap"
    storage.create(volume, OWNER)
    (volume / "upper" / "kept").write_text("kept")
    (volume / "guest" / "state").write_text("of the old guest")
    defaults = Defaults(env=(("A", "b"),), user="root", workdir="/srv")
    parts = {"snap": SnapshotParts(root.lower, volume, defaults)}
    with_snapshots = TemplateStore(storage, storage.pool.parent, snapshots=parts.__getitem__)

    template = Template("saved", TemplateSource(SourceKind.SNAPSHOT, "snap"))
    build = await with_snapshots.ensure(template, setup_runner=no_setup)
    storage.delete(volume)
    assert build.lower == root.lower
    assert build.seed
    assert (build.seed / "upper" / "kept").read_text() == "kept"
    assert list((build.seed / "guest").iterdir()) == []
    assert (build.env, build.user, build.workdir) == ((("A", "b"),), "root", "/srv")

    more = Template("more", TemplateSource(SourceKind.SNAPSHOT, "snap"), ("make",))
    runner = RecordingRunner(storage)
    built = await with_snapshots.ensure(more, setup_runner=runner)
    assert runner.calls[0][1] == build.seed
    assert built.seed
    assert (built.seed / "upper" / "kept").exists()
    with pytest.raises(Unsupported):
        await store.ensure(
            Template("x", TemplateSource(SourceKind.SNAPSHOT, "other")), setup_runner=no_setup
        )


async def test_a_root_that_others_stand_on_is_not_deleted(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    template = from_directory(tree, "set-up", ("make",))
    build = await store.ensure(template, setup_runner=RecordingRunner(storage))
    with pytest.raises(Conflict, match=build.digest):
        await store.delete(build.root)
    await store.delete(build.digest)
    await store.delete(build.digest)
    await store.delete(build.root)
    assert store.builds() == []
    assert list((storage.pool / "templates").iterdir()) == []
    with pytest.raises(NotFound):
        store.get(build.digest)
    with pytest.raises(InvalidRequest):
        await store.delete("../volumes")


async def test_one_that_came_into_use_while_it_was_removed_stays(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    build = await store.ensure(from_directory(tree, "plain"), setup_runner=no_setup)
    seen: list[bool] = []

    def users(digest: str) -> list[str]:
        seen.append((storage.pool / "templates" / digest).exists())
        return ["sandbox 1"]

    with pytest.raises(Conflict, match="in use by sandbox 1"):
        await store.delete(build.digest, users)
    assert seen == [False], "nobody can begin to use it while that is asked"
    assert store.get(build.digest) == build
    assert build.lower.is_dir()
    await store.delete(build.digest)
    assert store.builds() == []


async def test_an_exported_template_is_imported_elsewhere(
    store: TemplateStore, storage: Storage, driver: str, tree: Path, tmp_path: Path
) -> None:
    template = from_directory(tree, "set-up", ("make",))
    build = await store.ensure(template, setup_runner=RecordingRunner(storage))
    assert build.seed
    os.mknod(build.seed / "upper" / "whiteout", 0o020000, 0)
    os.setxattr(build.seed / "upper", "trusted.overlay.opaque", b"y")
    archive = tmp_path / "template.tar.zst"
    await store.export(build.digest, archive)
    with unmounted_afterwards(tmp_path / "other"):
        other = open_storage(tmp_path / "other", driver=driver, pool_size_mib=300)
        fresh = TemplateStore(other, tmp_path / "other")
        found = await fresh.import_from(archive)
        assert (found.digest, found.root, found.env) == (build.digest, build.root, build.env)
        assert found.seed
        assert (found.seed / "upper/whiteout").is_char_device()
        assert os.getxattr(found.seed / "upper", "trusted.overlay.opaque") == b"y"
        assert (found.seed / "upper").stat().st_uid == OWNER
        assert is_subvolume(found.seed) is (other.name == "btrfs")
        assert (found.lower / "usr/bin/tool").stat().st_mode & 0o7777 == 0o4755
        await fresh.import_from(archive)
        assert left_over(other) == []
        await fresh.ensure(template, setup_runner=no_setup)


async def test_what_is_no_exported_template_is_not_imported(
    store: TemplateStore, storage: Storage, tree: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "other.tar.zst"
    subprocess.run(["tar", "--zstd", "-cf", str(archive), "-C", str(tree), "etc"], check=True)
    with pytest.raises(InvalidRequest, match="holds no template"):
        await store.import_from(archive)
    archive.write_text("no archive")
    with pytest.raises(InvalidRequest):
        await store.import_from(archive)
    assert left_over(storage) == []


def test_an_unknown_template_is_not_found_and_the_known_ones_are_named(
    store: TemplateStore, tree: Path
) -> None:
    store.add(from_directory(tree, "mine"))
    with pytest.raises(NotFound) as caught:
        store.recipe("nothing")
    assert "base, code-interpreter, mine" in caught.value.remediation
    for odd in ("../mine", "/etc/passwd", ".locks", ""):
        with pytest.raises(NotFound):
            store.recipe(odd)


def test_recipes_are_kept_replaced_and_removed(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    full = Template(
        "mine",
        TemplateSource(SourceKind.DEBIAN, "bookworm", ("git",)),
        ("make",),
        (("A", "b"),),
        "root",
        "/srv",
        True,
        "runsc",
    )
    store.add(full)
    again = TemplateStore(storage, storage.pool.parent)
    assert again.recipe("mine") == full
    again.add(from_directory(tree, "mine"))
    assert store.recipe("mine") == from_directory(tree, "mine")
    assert [template.name for template in store.recipes()] == ["base", "code-interpreter", "mine"]
    store.remove("mine")
    store.remove("mine")
    assert [template.name for template in store.recipes()] == ["base", "code-interpreter"]


def test_a_built_in_template_can_be_overridden_but_not_removed(
    store: TemplateStore, tree: Path
) -> None:
    with pytest.raises(Conflict, match="built in"):
        store.remove("base")
    store.add(from_directory(tree, "base"))
    assert store.recipe("base").source.kind is SourceKind.DIRECTORY
    store.remove("base")
    assert store.recipe("base").source.kind is SourceKind.DEBIAN


def test_of_a_built_in_template_only_what_differs_is_kept(
    store: TemplateStore, storage: Storage
) -> None:
    """Written down whole, it would stay as it is in this release for ever."""
    path = storage.pool.parent / "templates" / "base.json"
    built_in = store.recipe("base")
    changed = replace(built_in, snapshot_ignore=("/tmp/*",))
    store.add(changed)
    assert json.loads(path.read_text()) == {"snapshot_ignore": ["/tmp/*"]}
    assert store.recipe("base") == changed
    store.add(built_in)
    assert not path.exists()
    assert store.recipe("base") == built_in
    path.write_bytes(msgspec.json.encode(changed))
    assert store.recipe("base") == changed, "as earlier releases kept it"


def test_a_recipe_that_cannot_be_read_is_named(store: TemplateStore, storage: Storage) -> None:
    path = storage.pool.parent / "templates" / "odd.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"name": 3}')
    with pytest.raises(Broken, match=r"odd\.json"):
        store.recipe("odd")


async def test_sources_that_are_not_there_are_explained(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    with pytest.raises(NotFound, match="/nowhere/at/all"):
        await store.ensure(from_directory(Path("/nowhere/at/all")), setup_runner=no_setup)
    with pytest.raises(InvalidRequest, match="absolute"):
        await store.ensure(from_directory(Path("relative")), setup_runner=no_setup)
    with pytest.raises(InvalidRequest, match="no directory"):
        await store.ensure(from_directory(tree / "etc/passwd"), setup_runner=no_setup)
    assert left_over(storage) == []


async def test_a_note_that_cannot_be_read_is_named_with_the_way_out(
    store: TemplateStore, storage: Storage, tree: Path
) -> None:
    build = await store.ensure(from_directory(tree), setup_runner=no_setup)
    (build.lower.parent / "template.json").write_text("{")
    with pytest.raises(Broken, match=r"template\.json") as caught:
        store.get(build.digest)
    assert "built again" in caught.value.remediation


async def test_two_directories_alike_are_told_apart_by_names_modes_and_owners(
    store: TemplateStore, tmp_path: Path
) -> None:
    digests = set()
    for number, change in enumerate(("none", "mode", "owner", "name")):
        tree = make_tree(tmp_path / f"tree{number}")
        if change == "mode":
            (tree / "usr/bin/tool").chmod(0o755)
        elif change == "owner":
            os.chown(tree / "usr/lib", 1, 1)
        elif change == "name":
            (tree / "usr/lib").rename(tree / "usr/lib64")
        digests.add((await store.ensure(from_directory(tree), setup_runner=no_setup)).digest)
    assert len(digests) == 4
