"""Certificates for the hosts that secrets are bound to."""

import subprocess
import sys

from paddock.adapters.egress.authority import Authority

# The gateway gives up its privileges once its modules are loaded. Without finders no other module
# can be imported, as if all files were out of reach.
PROGRAM = """
import sys
import paddock.gateway.__main__
from pathlib import Path
from paddock.gateway.minting import Mint
certificate, key = (Path(name).read_bytes() for name in sys.argv[1:])
sys.meta_path.clear()
Mint(certificate, key).context("api.example")
print("made")
"""


def test_a_certificate_is_made_where_the_installation_cannot_be_read(tmp_path):
    authority = Authority.of(tmp_path)
    files = {"certificate": authority.certificate, "key": authority.key}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    command = [sys.executable, "-c", PROGRAM, *(str(tmp_path / name) for name in files)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.stdout == "made\n", made.stderr
