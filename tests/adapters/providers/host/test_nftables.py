"""The kernel's packet filter, in a network namespace of a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from paddock.adapters.providers.host import nftables

pytestmark = [pytest.mark.usefixtures("as_root"), pytest.mark.timeout(60)]

SCRIPT = f"""
import ctypes, os, resource, sys
sys.path.insert(0, {str(Path(nftables.__file__).parents[4])!r})
from paddock.adapters.providers.host import nftables
from paddock.domain.errors import Broken
CLONE_NEWNET = 0x40000000
assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) == 0
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(sys.argv[1]))]
nftables.apply("create table inet tried\\n")
try:
    nftables.apply("create table inet tried\\n")
except Broken as error:
    print(error.message.splitlines()[0])
nftables.apply("delete table inet tried\\n")
"""


@pytest.mark.parametrize("held", [0, 700, 1100])
def test_rules_are_set_however_many_files_the_process_has_open(held: int) -> None:
    """libnftables aborts the process where its own file has a number from 1024 on."""
    command = [sys.executable, "-c", SCRIPT, str(held)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert "File exists" in done.stdout
