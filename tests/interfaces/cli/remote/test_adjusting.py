"""`paddock settings` against a live control plane."""

import pytest


@pytest.mark.proves("G1", "G2")
def test_settings_are_listed_changed_and_reset(cli):
    listed = cli.answer("settings", "list")["settings"]
    before = {each["key"]: each for each in listed}
    assert before["server.requests_burst"]["hot"]
    assert not before["server.port"]["hot"]
    hot = cli.answer("settings", "list", "--hot")["settings"]
    assert {each["key"] for each in hot} == {each["key"] for each in listed if each["hot"]}

    changed = cli.answer("settings", "set", "server.requests_burst=77", "log.level=debug")
    assert {each["key"]: each["value"] for each in changed["settings"]} == {
        "server.requests_burst": 77,
        "log.level": "debug",
    }
    lines = [line.split() for line in cli.text("settings").splitlines()]
    assert ["server.requests_burst", "run_time", "yes", "77.0"] in lines
    cli.text("settings", "reset", "server.requests_burst", "log.level")
    after = cli.answer("settings", "list")["settings"]
    assert {each["key"]: each["value"] for each in after} == {
        key: each["value"] for key, each in before.items()
    }


def test_what_is_no_setting_or_no_value_changes_nothing(cli):
    for wrong, says in (
        ("server.requests_bust=7", "server.requests_bust"),
        ("server.requests_burst=many", "server.requests_burst"),
        ("server.port=1", "server.port"),
        ("server.requests_burst", "KEY=VALUE"),
    ):
        refused = cli("settings", "set", "log.level=debug", wrong)
        assert refused.returncode == 2, refused.stderr
        assert says in refused.stderr.decode()
        assert b"fix: " in refused.stderr
    listed = cli.answer("settings", "list")["settings"]
    assert {each["key"]: each["value"] for each in listed}["log.level"] != "debug"
