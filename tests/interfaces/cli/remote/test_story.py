"""`paddock history`, as a program against a live control plane."""

import json
import time

import pytest


@pytest.mark.proves("U9")
def test_a_timeline_is_printed_and_replayed_at_its_pace(cli, box):
    cli("exec", box, "--", "sh", "-c", "exit 3")
    time.sleep(1.0)
    cli("exec", box, "--", "true")
    lines = cli.text("history", box).splitlines()
    assert "sandbox.creating" in lines[0]
    assert any("command.started" in line and "sh" in line and "exit 3" in line for line in lines)
    steps = [json.loads(line) for line in cli.text("history", box, "-o", "json").splitlines()]
    assert [step["kind"] for step in steps][:2] == ["sandbox.creating", "sandbox.running"]
    pauses_s = sum(step["after_s"] for step in steps)
    before = time.monotonic()
    replayed = cli("history", box, "--replay", "--speed", "2x")
    assert replayed.returncode == 0
    assert time.monotonic() - before >= pauses_s / 2
    assert replayed.stdout.decode().splitlines() == lines
    assert b"only the steps are replayed" in replayed.stderr
    assert cli("history", box, "--replay", "--speed", "0").returncode == 2
