"""A template's rules for snapshots, where no server runs."""

import json

from tests.interfaces.cli.conftest import Cli

NOWHERE = "1"
"""A port on which nobody listens."""


def here(tmp_path, **changes):
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return Cli(tmp_path / "data", {"PADDOCK_SERVER__PORT": NOWHERE, **home, **changes})


def test_rules_are_set_in_the_data_directory_which_is_named_and_no_pool_is_made(tmp_path):
    cli = here(tmp_path)
    done = cli("template", "ignore", "base", "/tmp/*", "-p", "local")
    assert (done.returncode, done.stdout) == (0, b"/tmp/*\n"), done.stderr
    assert f"changed in {cli.data}/templates".encode() in done.stderr
    assert [path.name for path in cli.data.rglob("*")] == ["templates", "base.json"]
    kept = json.loads((cli.data / "templates" / "base.json").read_text())
    assert kept == {"snapshot_ignore": ["/tmp/*"]}
    shown = cli("template", "ignore", "base", "-p", "local")
    assert (shown.stdout, shown.stderr) == (b"/tmp/*\n", b"")
    assert cli("template", "ignore", "base", "--none", "-p", "local").returncode == 0
    assert list((cli.data / "templates").iterdir()) == []


def test_a_server_that_was_named_and_does_not_answer_is_not_passed_over(tmp_path):
    cli = here(tmp_path, PADDOCK_URL=f"http://127.0.0.1:{NOWHERE}")
    done = cli("template", "ignore", "base", "/tmp/*", "-p", "local")
    assert done.returncode == 1
    assert b"no server answers" in done.stderr
    assert not cli.data.exists()
