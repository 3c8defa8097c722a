"""`paddock policy`, `paddock config` and `paddock secrets` as programs."""

import pytest

POLICY = """
default = "deny"

[[rules]]
name = "looking"
verdict = "allow"
command = "ls **"
"""


@pytest.mark.proves("E8")
def test_a_policy_is_set_shown_checked_and_taken_away(cli, tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    cli.answer("create", "--name", "ruled", "--template", "plain")
    assert cli("policy", "show", "--sandbox", "ruled").returncode == 1
    set_ = cli.text("policy", "set", str(file), "--sandbox", "ruled")
    assert set_ == "sandbox ruled: 1 rule in force\n"
    shown = cli.text("policy", "show", "--sandbox", "ruled").splitlines()
    assert shown[1].split() == ["allow", "ls", "**", "looking"]
    assert shown[2].split() == ["deny", "(everything", "else)", "default"]
    assert cli.text("policy", "check", "ruled", "--", "ls", "-l") == "allow\n"
    denied = cli("policy", "check", "ruled", "--", "sh", "-c", "ls; id")
    assert denied.returncode == 1
    assert b"id: no rule allows it" in denied.stdout
    refused = cli("exec", "ruled", "--", "id")
    assert refused.returncode == 1
    assert b"denied by the sandbox's policy" in refused.stderr
    assert cli("exec", "ruled", "--", "ls").returncode == 0
    assert cli.text("policy", "rm", "--sandbox", "ruled") == "sandbox ruled: no policy\n"
    assert cli("exec", "ruled", "--", "id").returncode == 0
    file.write_text("default = ")
    broken = cli("policy", "set", str(file))
    assert broken.returncode == 2
    assert b"neither TOML nor JSON" in broken.stderr
    cli.text("rm", "ruled")


@pytest.mark.proves("K1")
def test_an_apps_values_are_set_listed_used_and_removed(cli):
    assert cli.text("config", "set", "COLOUR=blue, or so", "--app", "cli-app") == "COLOUR set\n"
    assert cli.text("config", "get", "COLOUR", "--app", "cli-app") == "blue, or so\n"
    arguments = ("secrets", "set", "DEEP", "--app", "cli-app", "--policy", "runtime_access")
    made = cli(*arguments, stdin=b"sw0rdfish\n")
    assert made.stdout == b"DEEP set (runtime_access, version 1)\n", made.stderr
    assert "sw0rdfish" not in cli.text("secrets", "list", "--app", "cli-app", "-o", "json")
    assert cli.text("secrets", "list", "--app", "cli-app").splitlines()[1].split()[:2] == [
        "DEEP",
        "cli-app",
    ]
    hidden = cli("config", "get", "DEEP", "--app", "cli-app")
    assert (hidden.returncode, hidden.stdout) == (2, b"")
    widened = cli(*arguments[:-1], "both", "--keep-value")
    assert widened.returncode == 1
    assert b"give the value again" in widened.stderr
    cli.answer("create", "--name", "of-app", "--template", "plain", "--app", "cli-app")
    ran = cli.text("exec", "of-app", "--", "sh", "-c", "echo $COLOUR $DEEP")
    assert ran == "blue, or so sw0rdfish\n"
    cli.text("rm", "of-app")
    assert cli.text("secrets", "rm", "DEEP", "--app", "cli-app") == "DEEP removed\n"
    cli.text("config", "rm", "COLOUR", "--app", "cli-app")


def test_an_empty_secret_is_refused_and_an_empty_value_is_not(cli, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for words, stdin in (((), b""), ((), b"\n"), (("--from-file", str(empty)), b"unread")):
        done = cli("secrets", "set", "NOTHING", *words, stdin=stdin)
        assert (done.returncode, b"the value of NOTHING is empty" in done.stderr) == (2, True)
    assert b"NOTHING" not in cli("secrets", "list").stdout
    assert cli.text("config", "set", "NOTHING=") == "NOTHING set\n"
    cli.text("config", "rm", "NOTHING")


@pytest.mark.proves("P16")
def test_rules_of_egress_are_set_shown_tried_and_taken_away(cli, tmp_path):
    cli.answer("create", "--name", "fenced", "--template", "plain")
    assert cli.text("egress", "show", "fenced") == "mode none (by the sandbox)\n"
    tried = cli("egress", "test", "fenced", "https://a.example/x")
    assert (tried.returncode, tried.stdout) == (1, b"denied  a.example:443  no rule fits\n")
    refused = cli("egress", "allow", "fenced", "a.example")
    assert refused.returncode == 1
    assert (
        b"its capability `live_egress` is off" in refused.stderr or b"allowlist" in refused.stderr
    )
    assert cli.text("egress", "log", "fenced") == ""
    rules = tmp_path / "rules"
    rules.write_text("# what the shop needs\na.example\n!b.example  # never\n")
    set_ = cli.text("egress", "set", "--app", "shop", "--file", str(rules))
    assert set_ == "app shop: 2 rules of its own\n"
    shadowing = cli("egress", "set", "--app", "shop", "*.a.example", "b.a.example:443")
    assert shadowing.stderr.decode() == (
        "warning: the rule b.a.example:443 of the app shop never decides: *.a.example of the app "
        "shop comes first and covers it\n"
    )
    assert cli.text("egress", "rm", "--app", "shop") == "app shop: nothing of its own\n"
    assert cli.text("egress", "presets").split() == ["development"]
    assert len(cli.text("egress", "presets", "development").splitlines()) > 20
    for wrong, said in (
        (("set", "--app", "shop", "not a rule"), b"neither a host nor a request"),
        (("set", "--app", "x", "--template", "y", "a.example"), b"belong to one holder"),
        (("set", "a.example"), b"belong to one holder"),
        (("rm", "--sandbox", "fenced"), b"always has a policy"),
        (("test", "fenced", "::"), b"no place that can be connected to"),
        (("presets", "nosuch"), b"no egress policy of the preset"),
    ):
        done = cli("egress", *wrong)
        assert done.returncode in (1, 2), wrong
        assert said in done.stderr, (wrong, done.stderr)
    cli.text("rm", "fenced")
