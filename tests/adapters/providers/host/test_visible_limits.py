"""What programs see of the limits of their sandbox: the content of the files, and which CPUs."""

from itertools import count
from pathlib import Path

import pytest

from paddock.adapters.providers.host import visible_limits
from paddock.domain.sandbox import Resources

CPUINFO = "".join(f"processor\t: {number}\nmodel name\t: A\n\n" for number in range(4))


@pytest.mark.parametrize(
    ("cpus", "chosen"),
    [
        (0.25, [(0,), (1,), (2,), (3,), (0,)]),
        (1, [(0,), (1,), (2,), (3,), (0,)]),
        (1.5, [(0, 1), (2, 3), (0, 1), (2, 3), (0, 1)]),
        (3, [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3), (0, 1, 2)]),
        (4, [(0, 1, 2, 3)] * 5),
        (64, [(0, 1, 2, 3)] * 5),
    ],
)
def test_a_sandbox_has_as_many_cpus_as_its_limit_and_they_take_turns(cpus, chosen):
    turns = count()
    found = [visible_limits.choose_cpus(cpus, (0, 1, 2, 3), turns) for _ in chosen]
    assert found == chosen


def test_sandboxes_of_different_sizes_share_all_cpus():
    turns, usable = count(), tuple(range(8))
    chosen = [visible_limits.choose_cpus(cpus, usable, turns) for cpus in (1, 4, 1, 4)]
    assert chosen == [(0,), (1, 2, 3, 4), (5,), (0, 1, 6, 7)]


def test_only_cpus_that_can_be_used_are_chosen():
    turns = count()
    assert {visible_limits.choose_cpus(1, (2, 5), turns) for _ in range(4)} == {(2,), (5,)}


def test_memory_is_the_limit():
    lines = dict(line.split(":") for line in visible_limits.meminfo(512).splitlines())
    assert lines["MemTotal"].split() == lines["MemAvailable"].split() == ["524288", "kB"]
    assert lines["SwapTotal"].split() == ["0", "kB"]


def test_only_the_chosen_cpus_are_described():
    assert visible_limits.cpuinfo(CPUINFO, (1, 3)).count("processor") == 2
    assert "processor\t: 3" in visible_limits.cpuinfo(CPUINFO, (1, 3))
    assert visible_limits.cpuinfo("Hardware: odd\n", (0,)) == "Hardware: odd\n"


def test_files_are_changed_in_place_because_they_are_mounted(tmp_path: Path):
    visible_limits.write(tmp_path, Resources(memory_mib=2048), (0, 1))
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    visible_limits.write(tmp_path, Resources(memory_mib=64), (1,))
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == before
    assert set(before) == set(visible_limits.PLACES)
    assert (tmp_path / "online").read_text() == "1\n"
    assert (tmp_path / "meminfo").read_text() == visible_limits.meminfo(64)
