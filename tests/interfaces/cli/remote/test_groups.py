"""Identities and groups on the command line."""

import pytest

BEGIN = """
mkdir "$0" && cd "$0" && git init -q . && echo a > file && git add file &&
git -c user.name=a -c user.email=a@example.org commit -qm base && git rev-parse HEAD
"""


@pytest.mark.proves("L16")
def test_a_group_is_made_listed_and_looked_through(cli, running, tmp_path):
    wish = ("create", "--template", "plain")
    one = cli.text(*wish, "--identity", "issue-9").strip()
    assert cli.text(*wish, "--identity", "issue-9").strip() == one
    two = cli.text(*wish, "--group", "issue-9").strip()
    unclear = cli(*wish, "--identity", "issue-9")
    assert (unclear.returncode, two.encode() in unclear.stderr) == (1, True)
    assert cli(*wish, "--identity", "x", "--group", "y").returncode == 2
    for name in (one, two):
        place = str(tmp_path / name)
        base = cli.text("exec", name, "--", "sh", "-c", BEGIN, place).strip()
        work = {"work": {"directory": place, "base": base}}
        running.do(running.plane.admin.call("PATCH", f"/v1/sandboxes/{name}", work))
        cli.text("exec", "-w", place, name, "--", "sh", "-c", f"echo {name} > file; echo 1 > new")
    try:
        listed = cli.text("group", "ls").splitlines()
        assert listed == ["IDENTITY  SANDBOXES", f"issue-9   {two}, {one}"]
        assert {
            each["name"] for each in cli.answer("ls", "--identity", "issue-9")["sandboxes"]
        } == {
            one,
            two,
        }
        told = cli.text("group", "overlaps", "issue-9")
        assert f"file  {two} (changed), {one} (changed)" in told
        assert f"new   {two} (added), {one} (added)      all the same" in told
        refused = cli("rm", one)
        assert (refused.returncode, b"2 changed files: file, new" in refused.stderr) == (1, True)
    finally:
        cli.text("rm", "-f", one, two)
    assert cli("group", "overlaps", "issue-9").returncode == 1
