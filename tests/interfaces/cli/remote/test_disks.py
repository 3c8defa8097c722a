"""What is kept of a sandbox's disk, and its files while it sleeps."""

from dataclasses import replace

import pytest

from paddock.domain.errors import NotFound
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.services.provider_templates import Kept

PLAIN = Template("plain", TemplateSource(SourceKind.DIRECTORY, "/nowhere"))


class OneRecipe:
    """The only template of a provider."""

    def __init__(self, template):
        self.template = template

    def recipe(self, name):
        if name != self.template.name:
            raise NotFound(f"there is no template {name}")
        return self.template

    def add(self, template):
        self.template = template


def state(cli, box):
    return cli.answer("inspect", box)["sandboxes"][0]["state"]


def test_a_stopped_one_is_archived_and_start_brings_it_back(cli, box):
    cli.text("exec", box, "--", "sh", "-c", "echo kept > note")
    refused = cli("archive", box)
    assert refused.returncode == 1
    assert b"fix:" in refused.stderr
    cli.text("stop", box)
    assert cli.text("archive", box) == f"{box} archived\n"
    assert state(cli, box) == "archived"
    assert cli.answer("archive", box) == {"sandboxes": [box], "done": "archived"}
    cli.text("start", box)
    assert cli.text("exec", box, "--", "cat", "note") == "kept\n"


@pytest.mark.proves("N3")
def test_a_snapshot_is_returned_to_and_what_was_there_is_kept(cli, box):
    cli.text("exec", box, "--", "sh", "-c", "echo old > note")
    taken = cli.answer("snapshot", "create", box)["id"]
    cli.text("exec", box, "--", "sh", "-c", "echo new > note")
    before = cli.answer("inspect", box)["sandboxes"][0]["id"]
    said = cli.text("snapshot", "restore", box, taken)
    assert said == f"{box} restored; what it had is kept as an automatic snapshot\n"
    assert cli.text("exec", box, "--", "cat", "note") == "old\n"
    kept = cli.answer("snapshot", "list", "--sandbox", box)["snapshots"]
    automatic = [each["id"] for each in kept if each["automatic"]]
    assert len(automatic) == 1
    again = cli.answer("snapshot", "restore", box, automatic[0])
    assert (again["id"], again["state"]) == (before, "running")
    assert cli.text("exec", box, "--", "cat", "note") == "new\n"
    missing = cli("snapshot", "restore", box, "nothing-here")
    assert missing.returncode == 1
    assert cli.text("exec", box, "--", "cat", "note") == "new\n"


@pytest.fixture
def ruled(running, cli, box):
    """Its home, whose `out` and whose temporary files the template lets snapshots leave out."""
    script = (
        "mkdir -p out src/out; echo mine > src/out/x; touch out/x \"$(printf 'a\\033b').tmp\"; pwd"
    )
    home = cli.text("exec", box, "--", "sh", "-c", script).strip()
    name = cli.answer("inspect", box)["sandboxes"][0]["template"]
    template = replace(PLAIN, name=name, snapshot_ignore=(f"{home}/out", f"{home}/*.tmp"))
    providers = running.plane.services.providers
    providers.templates[providers.default] = Kept(OneRecipe(template), None)
    yield home
    providers.templates.clear()


@pytest.mark.proves("N1")
def test_what_is_left_out_of_a_snapshot_is_said_and_shown(cli, box, ruled):
    done = cli("snapshot", "create", box, "--name", "without")
    said = done.stderr.decode()
    assert f"{ruled}/out, {ruled}/a\\x1bb.tmp" in said, "and the terminal obeys no name"
    assert "--everything keeps these too" in said
    shown = cli.text("snapshot", "inspect", "without")
    assert "left out        2 paths" in shown
    assert "\x1b" not in shown
    ignored = cli.answer("snapshot", "inspect", "without")["ignore"]
    assert (ignored["applied"], ignored["left_out_count"]) == (True, 2)
    listed = cli.text("snapshot", "list", "--sandbox", box).splitlines()
    assert listed[0].endswith("LEFT OUT")
    assert " 2 (" in listed[1]
    assert cli.text("exec", box, "--", "ls", "out") == "x\n"
    copy = cli.text("create", "--snapshot", "without").strip()
    assert cli.text("exec", copy, "--", "sh", "-c", "ls; cat src/out/x") == "src\nmine\n"
    whole = cli("snapshot", "create", box, "--name", "without", "--force", "--everything")
    assert whole.stderr == b""
    assert "nothing: everything was asked for" in cli.text("snapshot", "inspect", "without")
    cli.text("snapshot", "rm", "without")
    cli.text("rm", "-f", copy)


def test_a_templates_rules_are_the_servers_and_changing_them_is_audited(cli, running):
    shelf = OneRecipe(replace(PLAIN, name="plain"))
    providers = running.plane.services.providers
    providers.templates[providers.default] = Kept(shelf, None)
    try:
        assert cli.text("template", "ignore", "plain", "/tmp/*") == "/tmp/*\n"
        assert shelf.recipe("plain").snapshot_ignore == ("/tmp/*",)
        assert cli.answer("template", "ignore", "plain")["snapshot_ignore"] == ["/tmp/*"]
        assert "leave nothing out" in cli.text("template", "ignore", "plain", "--none")
        assert shelf.recipe("plain").snapshot_ignore == ()
    finally:
        providers.templates.clear()
    assert cli.text("audit").count("template.ignore") == 2


@pytest.mark.proves("S11")
def test_a_copy_starts_a_sandbox_that_sleeps_unless_told_not_to(cli, box, tmp_path):
    home = cli.text("exec", box, "--", "sh", "-c", "mkdir d; echo 1 > d/one; pwd").strip()
    (tmp_path / "new").write_text("new")
    into = (str(tmp_path / "new"), f"{box}:{home}/new")
    out = (f"{box}:{home}/d", str(tmp_path / "back"))
    file = (f"{box}:{home}/d/one", str(tmp_path / "one"))
    for verb, words in (("stop", into), ("pause", out), ("archive", file)):
        if verb == "archive":
            cli.text("stop", box)
        cli.text(verb, box)
        asleep = state(cli, box)
        refused = cli("cp", "--no-start", *words)
        assert refused.returncode == 1
        waking = "resume" if verb == "pause" else "start"
        fix = f"fix: leave out --no-start, or start it first: `paddock {waking} {box}`"
        assert fix in refused.stderr.decode()
        assert state(cli, box) == asleep
        assert cli.text("cp", *words).startswith("1 file, ")
        assert state(cli, box) == "running"
    assert cli.text("exec", box, "--", "cat", "new") == "new"
    assert (tmp_path / "back" / "one").read_text() == "1\n"
    assert (tmp_path / "one").read_text() == "1\n"
