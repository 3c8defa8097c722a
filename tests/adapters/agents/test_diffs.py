"""Differences that a real `patch` understands."""

import random
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.adapters.agents import diffs
from paddock.domain.agent_event import LONGEST_DATA

LINES = st.lists(st.sampled_from(["a", "b", "", "c\u2028d", "\\"]), max_size=6)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


def _patched(where, old, diff):
    (where / "f").write_text(old, newline="")
    command = ["patch", "-s", "-p1", "--no-backup-if-mismatch"]
    if diff:
        subprocess.run(command, input=diff.encode(), cwd=where, check=True, timeout=10)
    return (where / "f").read_bytes().decode() if (where / "f").exists() else ""


@settings(max_examples=30, deadline=None)
@given(old=TEXTS, new=TEXTS)
def test_a_difference_makes_the_new_text_of_the_old(tmp_path_factory, old, new):
    where = tmp_path_factory.mktemp("diff")
    assert _patched(where, old, diffs.between("f", old, new)) == new


def test_files_come_and_go():
    assert diffs.between("/w/f", None, "a\n") == "--- /dev/null\n+++ b/w/f\n@@ -0,0 +1 @@\n+a\n"
    assert diffs.between("/w/f", "a\n", None) == "--- a/w/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    assert diffs.between("/w/f", None, "") == ""


def test_what_would_take_too_long_or_be_too_much_is_left_out():
    long = "x\n" * (200 << 10)
    assert diffs.between("f", long, long + "y") == ""
    event = diffs.edited("f", "add", diffs.between("f", None, long))
    assert len(event.data["diff"]) == LONGEST_DATA
    assert event.data["cut"]


def _many(seed):
    picked = random.Random(seed)
    return "".join(picked.choice("abcdefghij") + "\n" for _ in range(64_000))


@pytest.mark.parametrize(
    "old, new",
    [
        pytest.param(_many(1), _many(2), id="no-line-in-place"),
        pytest.param("a\n" * 64_000, "b\n" * 64_000, id="all-changed"),
        pytest.param(_many(1), _many(1).replace("a\n", "x\n", 1), id="one-line"),
        pytest.param(_many(1)[:-2], _many(1) + "end", id="at-the-end"),
        pytest.param(_many(1)[:1180], _many(2)[:1180], id="as-many-as-are-compared"),
    ],
)
def test_a_long_text_is_compared_in_a_moment_and_the_difference_is_true(tmp_path, old, new):
    began = time.process_time()
    diff = diffs.between("f", old, new)
    assert time.process_time() - began < 2
    assert _patched(tmp_path, old, diff) == new


def test_of_a_long_text_only_what_changed_is_told():
    old = "".join(f"{n}\n" for n in range(30_000))
    diff = diffs.between("f", old, old.replace("20000\n", "new\n"))
    assert diff == (
        "--- a/f\n+++ b/f\n@@ -19998,7 +19998,7 @@\n 19997\n 19998\n 19999\n-20000\n+new\n"
        " 20001\n 20002\n 20003\n"
    )
