"""`paddock volume`, and `--volume` of what makes sandboxes."""

import os

import pytest

pytestmark = [pytest.mark.timeout(90)]


@pytest.fixture(autouse=True)
def root(need):
    if os.geteuid() != 0:
        need("root", "the simulated provider mounts volumes as root only")


def test_one_is_made_mounted_looked_at_and_removed(cli):
    assert cli.text("volume", "create", "shared") == "shared\n"
    assert cli.text("volume", "ls").splitlines()[1].startswith("shared  vol_")
    made = cli.text("create", "--template", "plain", "--volume", "shared:/mnt/data").strip()
    assert cli.text("exec", made, "--", "sh", "-c", "echo kept > /mnt/data/f") == ""
    read = cli.text(
        "run", "--template", "plain", "--volume", "shared:/mnt/x:ro", "--", "cat", "/mnt/x/f"
    )
    assert read == "kept\n"
    assert cli.answer("volume", "inspect", "shared")["mounted_by"] == [made]
    assert f"mounted by  {made}\n" in cli.text("volume", "inspect", "shared")
    refused = cli("volume", "rm", "shared")
    assert refused.returncode == 1
    assert f"volume shared is mounted by {made}" in refused.stderr.decode()
    cli.text("rm", "--force", made)
    assert cli.text("volume", "rm", "shared") == "shared removed\n"
    assert cli.answer("volume", "ls") == {"volumes": []}


def test_what_cannot_be_read_is_a_usage_error(cli):
    for word in ("shared", "shared:relative", ":/mnt", "shared:/mnt:rx"):
        done = cli("create", "--volume", word)
        assert done.returncode == 2, done.stderr.decode()
        assert "write NAME:/PATH" in done.stderr.decode()
