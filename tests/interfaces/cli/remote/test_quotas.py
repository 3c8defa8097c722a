"""`paddock team quota` against a live server."""

from tests.interfaces.cli.remote.conftest import Cli


def test_quotas_are_shown_set_and_reset(cli, running):
    token = cli.text("team", "create", "small").strip()
    member = Cli(running.url, token)
    shown = cli.text("team", "quota", "set", "small", "--sandboxes", "1", "--cpus", "1.5")
    lines = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
    assert lines["sandboxes"] == ["0", "1", "team"]
    assert lines["cpus"] == ["0", "1.5", "team"]
    assert lines["tasks"][1:] == ["unlimited", "settings"]
    member.text("create", "--template", "plain", "--name", "only")
    refused = member("create", "--template", "plain")
    assert refused.returncode != 0
    said = refused.stderr.decode()
    assert "team small is limited to 1 sandboxes: it has 1" in said
    assert "paddock team quota set small --sandboxes N" in said
    own = {each["name"]: each for each in member.answer("team", "quota", "show")["limits"]}
    assert (own["sandboxes"]["used"], own["sandboxes"]["limit"]) == (1, 1)
    assert b"is not a number" in cli("team", "quota", "set", "small", "--cpus", "many").stderr
    member.text("rm", "only")
