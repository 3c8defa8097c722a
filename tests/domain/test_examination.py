"""What is read from inside a sandbox that may say anything, and what nobody is to read."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.examination import MOST_PROCESSES, Look, next_look, read_inside
from paddock.domain.hiding import HIDDEN, without_values
from paddock.domain.task import TaskRecord
from paddock.domain.task_wish import TaskWish
from paddock.domain.vitals import Thresholds, begun

TASK = TaskRecord("tsk_1", "tem_1", "a", TaskWish("x", "command"), 0.0, 0.0)
STAT = "(a ) b) S 7 1 1 0 -1 4 0 0 0 0 150 50 0 0 20 0 1 0 5 0 0"
TOLD = "\n".join(
    (
        f"process\x1f12 {STAT}\x1fdo_poll\x1fpython3 -m x ",
        f"process\x1f13 {STAT}\x1f0\x1f",
        "process\x1fnonsense\x1f\x1f",
        "memory\x1fMemTotal\x1f2048 kB",
        "disk\x1f/dev/sda 2048000 1 1 99% /home/a",
        "tcp\x1f0: 0100007F:1F90 0200000A:01BB 01 0",
        "tcp\x1f1: 0100007F:1F90 00000000:0000 0A 0",
        "tcp\x1f2: x",
        "what is this",
    )
)


def test_processes_memory_disks_and_connections_are_read():
    found = read_inside(TOLD)
    first, second = found["processes"]
    assert (first.pid, first.parent, first.state, first.cpu_s) == (12, 7, "S", 2.0)
    assert (first.waits_in, first.command) == ("do_poll", "python3 -m x")
    assert (second.waits_in, second.command) == ("", "[a ) b]")
    assert found["memory_mib"] == {"total": 2.0}
    more = read_inside(f"{TOLD}\nmemory\x1fMemAvailable\x1f1024 kB")
    assert more["memory_mib"] == {"total": 2.0, "available": 1.0}
    only_the_limit = read_inside(f"{TOLD}\nmemory\x1fMemAvailable\x1f2048 kB")
    assert only_the_limit["memory_mib"] == {"total": 2.0}
    assert found["disks"] == ("/home/a: 99% of 2000 MiB used",)
    assert found["connections"] == ("established 10.0.0.2:443",)


def test_of_many_processes_those_that_used_the_most_are_told():
    lines = (
        f"process\x1f{n} (x) R 1 1 1 0 -1 4 0 0 0 0 {n} 0 0 0 1 0\x1f\x1fx" for n in range(200)
    )
    found = read_inside("\n".join(lines))["processes"]
    assert [each.pid for each in found] == list(range(200 - MOST_PROCESSES, 200))


@given(st.text())
def test_whatever_is_told_is_read(text):
    read_inside(text)
    read_inside("\n".join(f"{kind}\x1f{text}" for kind in ("process", "memory", "disk", "tcp")))


@pytest.mark.proves("H7")
def test_what_is_stuck_is_looked_into_now_and_then_and_then_somebody_is_asked():
    thresholds = Thresholds(diagnose_cooldown_s=100.0, most_diagnoses=2)
    works = replace(TASK, vitals=begun(1000.0))
    assert next_look(works, 1010.0, thresholds)[0] is Look.NONE
    assert next_look(works, 1310.0, thresholds)[0] is Look.EXAMINE
    looked = replace(works, diagnoses=(1310.0,))
    assert next_look(looked, 1400.0, thresholds)[0] is Look.NONE
    assert next_look(looked, 1411.0, thresholds)[0] is Look.EXAMINE
    again = replace(works, diagnoses=(1310.0, 1411.0))
    assert next_look(again, 1500.0, thresholds)[0] is Look.NONE
    look, why = next_look(again, 1600.0, thresholds)
    assert (look, "no output" in why) == (Look.ASK, True)
    assert next_look(again, 9e9, replace(thresholds, most_diagnoses=0))[0] is Look.NONE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("curl -H 'Authorization: Bearer abcdef12345'", f"Authorization: {HIDDEN}"),
        ("x --api-key hunter2hunter2 y", f"x --api-key {HIDDEN} y"),
        ("PASSWORD=letmein sh", f"PASSWORD={HIDDEN} sh"),
        ("git clone https://me:s3cret@host/x", f"https://me:{HIDDEN}@host/x"),
        ("use sk-ant-REDACTED now", f"use {HIDDEN} now"),
        ("the plain value is here", f"the {HIDDEN} is here"),
    ],
)
def test_credentials_are_taken_out_by_value_and_by_looks(text, shown):
    assert shown in without_values(text, ["plain value", "is"])


def test_ordinary_words_stay():
    line = "python3 -m pytest tests/tasks/test_tasks.py -k token_count --maxfail=1"
    assert without_values(line, []) == line
