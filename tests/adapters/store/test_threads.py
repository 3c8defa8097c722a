"""Rows are read by several threads at once, also when nobody has read one before."""

import subprocess
import sys

import pytest

# On its own, as it is the process that ends when it goes wrong.
PROGRAM = """
import sys, threading
from dataclasses import make_dataclass
from enum import StrEnum
from paddock.adapters.store.records import restored

sys.setswitchinterval(1e-6)
row = {"kind": "a1", "inner": {"kind": "a2"}, "more": {"x": {"kind": "a3"}}}
for number in range(400):
    kind = StrEnum(f"Kind{number}", {f"A{n}": f"a{n}" for n in range(40)})
    inner = make_dataclass(f"Inner{number}", [("kind", kind)], frozen=True, slots=True)
    fields = [("kind", kind), ("inner", inner), ("more", dict[str, inner])]
    record = make_dataclass(f"Record{number}", fields, frozen=True, slots=True)
    together = threading.Barrier(6)

    def read():
        together.wait()
        restored(row, record)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.timeout(120)
def test_kinds_of_records_that_are_new_to_all_threads():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=100)
