"""What a script may run, as we read it, against what bash really runs."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.adapters.shell_script import LARGEST_SCRIPT, read_script
from paddock.domain.command_line import Unreadable
from paddock.domain.command_policy import CommandPolicy, Rule, Verdict, judge

_SHIM = """#!/bin/bash
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\1'; } >> "$LOG"
"""


def commands(script):
    return list(read_script(script).commands)


@pytest.mark.proves("E8")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("ls -l", [("ls", "-l")]),
        ("a; b && c || d | e & f", [(name,) for name in "abcdef"]),
        ("git commit -m 'two words' \"and $x\"", [("git", "commit", "-m", "two words", None)]),
        ('echo "$(rm -rf /)" `id`', [("rm", "-rf", "/"), ("id",), ("echo", None, None)]),
        ("diff <(a) >(b)", [("a",), ("b",), ("diff", None, None)]),
        ("if a; then b; elif c; then d; else e; fi", [(name,) for name in "abcde"]),
        ('for f in *; do rm "$f"; done', [("rm", None)]),
        ("f() { rm x; }; f", [("rm", "x"), ("f",)]),
        ("case $x in a) b;; *) c;; esac", [("b",), ("c",)]),
        ("{ a; (b); } > f 2>&1", [("a",), ("b",)]),
        ("A=$(a) B=2 b", [("a",), ("b",)]),
        ("r\\m 'r'\"m\" r''m", [("rm", "rm", "rm")]),
        (
            "git show HEAD~1 a{} ~/x *.py {a,b}",
            [("git", "show", "HEAD~1", "a{}", None, None, None)],
        ),
        ("cat <<'E'\n$(rm x)\nE\nb", [("cat",), ("b",)]),
        ("cat <<E && b\n$(rm x)\nE", [("cat",), ("b",), ("rm", "x")]),
        ("a \\\n  b # c\n", [("a", "b")]),
        ('[ -n "$(a)" ] && [[ $x == y* ]]', [("a",)]),
        ("export A=$(a)", [("a",), ("export", "A=")]),
        ("echo ${x:-$(a)} $((1 + 2))", [("a",), ("echo", None, None)]),
        ("cat <<E\nE\nrm x\nE", [("cat",), ("rm", "x"), ("E",)]),
        ("$x y", [(None, "y")]),
        ("", []),
    ],
)
def test_every_command_of_a_script_is_found(script, expected):
    assert sorted(commands(script), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    "script",
    [
        "if",
        "a 'b",
        "r\\\nm x",
        "time { rm x; }",
        "coproc { rm x; }",
        "x='a[$(rm y)]'; ((x))",
        "echo $((x))",
        "let x",
        "[[ $x -eq 1 ]]",
        "[[ -v $x ]]",
        "echo ${!x}",
        "echo ${x@P}",
        "echo ${x:y}",
        "echo ${x[$(a)]}",
        "a[$(b)]=c",
        "for ((i=0; i<3; i++)); do a; done",
        "a\rb",
        "a\u00a0b",
        "a\x0bb",
        "echo `a \\`rm x\\``",
        'echo $"a"',
        "cat <<A <<B\nA\nB\n",
        "a" * (LARGEST_SCRIPT + 1),
        "(" * 200 + "a" + ")" * 200,
        "echo \ud800",
    ],
)
def test_what_is_doubtful_is_never_read_as_harmless(script):
    policy = CommandPolicy(default=Verdict.ALLOW)
    assert judge(policy, ["bash", "-c", script], read_script).verdict is Verdict.DENY


def _run(script):
    """What bash really runs, of programs that only say that they were run."""
    with tempfile.TemporaryDirectory(prefix="pd-sh-") as made:
        place = Path(made)
        (place / "bin").mkdir()
        (place / "cwd").mkdir()
        for name in "xyz":
            (place / "bin" / name).write_text(_SHIM)
            (place / "bin" / name).chmod(0o755)
        log = place / "log"
        log.touch()
        process = subprocess.Popen(
            ["/bin/bash", "-c", script],
            env={"PATH": str(place / "bin"), "LOG": str(log)},
            cwd=place / "cwd",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        said = log.read_bytes().split(b"\1")[:-1]
        return [
            tuple(part.decode(errors="replace") for part in one.split(b"\0")[:-1]) for one in said
        ]


def _covers(words, ran):
    """Whether these words may come to what was run."""
    if not words:
        return not ran
    if words[0] is None:
        return any(_covers(words[1:], ran[n:]) for n in range(len(ran) + 1))
    return bool(ran) and ran[0] == words[0] and _covers(words[1:], ran[1:])


_PIECES = st.sampled_from(
    [
        *(
            "x",
            "y",
            "z",
            "x ",
            " y",
            "z 1",
            " ",
            " ",
            "\n",
            "\t",
            ";",
            "; ",
            "&",
            "&& ",
            "|",
            "|| ",
        ),
        *(
            "(",
            ")",
            "{ ",
            "; }",
            "}",
            "'",
            '"',
            "$(",
            "`",
            "$",
            "${",
            "$a",
            "a=x",
            "a=",
            "\\",
            "\\\n",
        ),
        *(
            "<<E\n",
            "<<'E'\n",
            "<<-E\n",
            "\nE\n",
            "E",
            "#",
            " #",
            "!",
            "! ",
            "if ",
            "; then ",
            "; fi",
        ),
        *(
            "for a in ",
            "; do ",
            "; done",
            "case x in x) ",
            ";; esac",
            "f() ",
            "f",
            "<(",
            ">q",
            "2>&1",
        ),
        *("[[ ", " ]]", "[ ", " ]", "$((", "))", "((", "a[", "]", "{x,", "time ", "eval ", "exec "),
        *("$'", '$"', "*", "~", "<<<", "function f ", "coproc ", "-c ", "${a:-", "${a#", "=", "+="),
    ]
)


@pytest.mark.proves("E8")
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_PIECES, min_size=1, max_size=14).map("".join))
def test_bash_runs_nothing_that_was_not_found(script):
    try:
        found = read_script(script)
    except Unreadable:
        return
    known = [words for words in found.commands if words]
    # What these run is judged elsewhere: they are never taken for an ordinary command.
    if any(words[0] in ("eval", "exec", "time", "coproc", ".", "command") for words in known):
        return
    for ran in _run(script):
        assert any(_covers(words, ran) for words in known), (script, ran, known)


def test_a_policy_over_a_script_names_what_it_found():
    policy = CommandPolicy((Rule("no push", Verdict.DENY, "git ** push **"),))
    decision = judge(policy, ["bash", "-lc", "make && git push"], read_script)
    assert (decision.verdict, decision.rule, decision.program) == (Verdict.DENY, "no push", "git")


def test_characters_beyond_ascii_are_read_as_they_are():
    found = commands("echo 'сообщение' \"中文 x\" é=1 | grep ö && x=§ y")
    assert found == [("echo", "сообщение", "中文 x", "é=1"), ("grep", "ö"), ("y",)]


_EVERY_PLANE = """
from paddock.adapters.shell_script import read_script
from paddock.domain.command_line import Unreadable
for code in (*range(0x1000, 0xD000, 0x1000), *range(0xE000, 0x110000, 0x1000)):
    for before in ("", "$", "<<", "${a", "a=", "[[ a =~ ", "{", "$("):
        try:
            read_script(f"{before}{chr(code)}a {chr(code)}")
        except Unreadable:
            pass
"""


def test_no_character_ends_the_process():
    """Where the grammar's own tables end depends on where a process has been put, so several try:
    of those that showed the grammar such characters every second one was ended."""
    trying = [subprocess.Popen([sys.executable, "-c", _EVERY_PLANE]) for _ in range(8)]
    assert [each.wait(60) for each in trying] == [0] * 8
