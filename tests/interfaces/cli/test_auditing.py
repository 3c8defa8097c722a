"""`paddock audit verify FILE`: an export is checked where no server is."""

import dataclasses
import json
import subprocess

import pytest

from paddock.domain.audit import START, AuditEntry, chained, old_link
from paddock.interfaces.api.schemas.audit import show_entry
from tests.interfaces.cli.conftest import PADDOCK, clean_environment


def exported(count, team="tem_1"):
    """Lines as `GET /v1/audit/export` has them, among entries of another team."""
    last, ours, lines = START, START, []
    for n in range(count):
        other = chained(AuditEntry("tem_9", "tok_9", "x", "y", float(n)), last, START)
        entry = AuditEntry(
            team, "usr_1/tok_1", "sandbox.create", f"sbx_{n}", n + 0.123456789, {"n": n}
        )
        entry = chained(entry, other.head, ours)
        last, ours = entry.head, entry.team_head
        lines.append(json.loads(show_entry(entry, {"usr_1": "Ada"}).model_dump_json()))
    return lines


def verify(tmp_path, lines, *arguments):
    file = tmp_path / "export.ndjson"
    file.write_text(
        "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    )
    return subprocess.run(
        [*PADDOCK, "audit", "verify", str(file), *arguments],
        env=clean_environment(PADDOCK_URL="http://127.0.0.1:1"),
        capture_output=True,
        check=False,
        timeout=60,
        text=True,
    )


def head(line):
    return f"{line['seq']}:{line['hash']}"


@pytest.mark.proves("U5")
def test_an_untouched_export_holds_and_its_head_is_told(tmp_path):
    lines = exported(5)
    done = verify(tmp_path, lines)
    assert done.returncode == 0, done.stderr
    assert "The log holds: 5 entries" in done.stdout
    assert f"Head: {head(lines[-1])}" in done.stdout
    assert "end been cut off" in done.stdout
    expected = verify(tmp_path, lines, "--expect", head(lines[-1]))
    assert expected.returncode == 0
    assert "end been cut off" not in expected.stdout


TAMPERED = {
    "actor": (lambda lines: lines[2].update(actor="usr_2/tok_1"), 3),
    "detail": (lambda lines: lines[2]["detail"].update(n=9), 3),
    "time for readers": (lambda lines: lines[2].update(at="2001-01-01T00:00:00Z"), 3),
    "person": (lambda lines: lines[2]["person"].update(id="usr_2"), 3),
    "removed": (lambda lines: lines.pop(2), 4),
    "removed in front": (lambda lines: lines.pop(0), 2),
    "exchanged": (lambda lines: lines.insert(2, lines.pop(3)), 4),
    "put in": (lambda lines: lines.insert(2, exported(9)[2]), 3),
    "no entry": (lambda lines: lines.insert(2, "[]"), 3),
    "no JSON": (lambda lines: lines.insert(2, "{"), 3),
}


@pytest.mark.proves("U5")
@pytest.mark.parametrize("what", TAMPERED)
def test_an_export_that_was_tampered_with_does_not_hold(tmp_path, what):
    tamper, seq = TAMPERED[what]
    lines = exported(6)
    tamper(lines)
    done = verify(tmp_path, lines)
    assert done.returncode == 1, done.stdout
    assert f"does NOT hold. Entry {seq}:" in done.stdout


@pytest.mark.proves("U5")
def test_a_cut_end_shows_to_who_kept_the_head(tmp_path):
    lines = exported(5)
    assert verify(tmp_path, lines[:4]).returncode == 0
    done = verify(tmp_path, lines[:4], "--expect", head(lines[4]), "-o", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["first_break"]["seq"] == 5
    assert "cut off" in found["first_break"]["problem"]


@pytest.mark.proves("U5")
def test_details_that_were_taken_out_are_no_tampering_and_are_counted(tmp_path):
    lines = exported(5)
    lines[1] |= {"detail": {}, "salt": ""}
    done = verify(tmp_path, lines)
    assert done.returncode == 0
    assert "Details of 1 were taken out; purges account for only 0 of them." in done.stdout


def test_an_export_of_an_older_version_is_not_called_forged(tmp_path):
    old = AuditEntry("tem_1", "tok_1", "x", "y", 1.0, {"n": 1}, seq=3, seal="5" * 64)
    old = dataclasses.replace(old, hash=old_link(old))
    line = json.loads(show_entry(old, {}).model_dump_json())
    done = verify(tmp_path, [line | {"seq": 3, "hash": old.hash, "previous": old.previous}])
    assert done.returncode != 0
    assert "export it again" in done.stderr


def test_a_head_that_is_none_is_refused(tmp_path):
    done = verify(tmp_path, exported(1), "--expect", "1:zz")
    assert done.returncode == 2
    assert "is no head" in done.stderr
