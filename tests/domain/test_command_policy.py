"""Which commands a policy allows."""

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddock.adapters.shell_script import read_script
from paddock.domain.command_line import WRAPPED, Script, Unreadable, steps
from paddock.domain.command_policy import (
    CommandPolicy,
    Rule,
    Verdict,
    exactly,
    judge,
    policy_of,
    with_exception,
)
from paddock.domain.errors import InvalidRequest

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY


def policy(*rules, default=DENY, unknown=DENY):
    made = tuple(Rule(f"rule {n}", verdict, command) for n, (verdict, command) in enumerate(rules))
    return CommandPolicy(made, default, unknown)


def verdict(given, command, env=None):
    argv = shlex.split(command) if isinstance(command, str) else command
    return judge(given, argv, read_script, env).verdict


GIT_ONLY = policy((DENY, "git ** push **"), (ALLOW, "git **"), (ALLOW, "ls **"))


@pytest.mark.proves("E8")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", ALLOW),
        ("/usr/bin/git status", ALLOW),
        ("./git status", DENY),
        ("/tmp/git status", DENY),
        ("git push", DENY),
        ("git -C x push origin", DENY),
        ("rm -rf /", DENY),
        ("bash -c 'git status && ls -l'", ALLOW),
        ("bash -lc 'git log | ls'", ALLOW),
        ("sh -c 'git status; rm x'", DENY),
        ("sh -c 'git log $(rm x)'", DENY),
        ("sh -c 'git $x'", DENY),
        ("sh -c 'ls $x'", ALLOW),
        ("sh -c '$x status'", DENY),
        ("sh -c 'PATH=/tmp git status'", DENY),
        ("sh -c 'export PATH=/tmp; git status'", DENY),
        ("sh -c 'X=1 git status'", ALLOW),
        ("sh -c 'bash -c \"git status\"'", ALLOW),
        ("sh -c 'bash -c \"git push\"'", DENY),
        ("sh -c 'git status' more", DENY),
        ("bash -ic 'git status'", DENY),
        ("bash script.sh", DENY),
        ("bash", DENY),
        ("zsh -c 'git status'", DENY),
        ("/tmp/bash -c 'git status'", DENY),
        ("sh -c 'if'", DENY),
    ],
)
def test_only_what_is_surely_allowed_passes_an_allowlist(command, expected):
    assert verdict(GIT_ONLY, command) is expected


NO_RM = policy((DENY, "rm **"), (ASK, "git ** push **"), default=ALLOW)


@pytest.mark.proves("E8")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls", ALLOW),
        ("rm x", DENY),
        ("/bin/rm x", DENY),
        ("./rm x", DENY),
        ("sh -c 'ls; rm x'", DENY),
        ("sh -c 'r\\m x'", DENY),
        ("env A=1 rm x", DENY),
        ("env -i -u A rm x", DENY),
        ("env -S 'rm x'", DENY),
        ("nohup nice -n 5 timeout -k 1 10 rm x", DENY),
        ("timeout 5 ls", ALLOW),
        ("xargs -0 rm", DENY),
        ("xargs -I{} {} x", DENY),
        ("xargs ls", ALLOW),
        ("sudo -u root rm x", DENY),
        ("sudo -i", DENY),
        ("find . -name '*.py'", ALLOW),
        ("find . -exec rm {} +", DENY),
        ("sh -c 'command -v rm'", ALLOW),
        ("sh -c 'command rm x'", DENY),
        ("sh -c 'exec rm x'", DENY),
        ("sh -c 'time rm x'", DENY),
        ("sh -c 'eval \"r\"m x'", DENY),
        ("sh -c '. ./x'", DENY),
        ("sh -c 'trap \"rm x\" EXIT'", DENY),
        ("sh -c 'echo rm | sh'", DENY),
        ("sh -c '{r,}m x'", DENY),
        ("sh -c 'rm() { ls; }; rm'", DENY),
        ("sh -c 'unset \"a[$x]\"'", DENY),
        ("busybox rm x", DENY),
        ("git push", ASK),
        ("sh -c 'git push; rm x'", DENY),
        ("sh -c 'git $x'", ASK),
        ("sh -c 'git status'", ALLOW),
    ],
)
def test_what_may_be_denied_does_not_pass_in_disguise(command, expected):
    assert verdict(NO_RM, command) is expected


def test_a_command_as_the_sdk_sends_it_is_judged_by_its_script():
    assert verdict(GIT_ONLY, [*WRAPPED, "git status"]) is ALLOW
    assert verdict(GIT_ONLY, [*WRAPPED, "git push"]) is DENY
    assert verdict(GIT_ONLY, [*WRAPPED[:2], "rm x", "sh", "git status"]) is DENY


def test_variables_that_change_what_a_name_stands_for_undo_an_allowance():
    assert verdict(GIT_ONLY, "git status", {"COLOUR": "blue"}) is ALLOW
    for name in ("PATH", "LD_PRELOAD", "BASH_ENV"):
        assert verdict(GIT_ONLY, "git status", {name: "x"}) is DENY


def test_what_cannot_be_told_is_allowed_only_by_a_rule_that_names_its_program():
    assert verdict(policy((ALLOW, "**"), default=ALLOW), "bash") is DENY
    assert verdict(policy((ALLOW, "*sh"), default=ALLOW), "bash") is DENY
    assert verdict(policy((ALLOW, "bash -l")), "bash -l") is ALLOW
    assert verdict(policy((ALLOW, "bash -l")), "bash -il") is DENY
    assert verdict(policy(default=ALLOW, unknown=ASK), "bash") is ASK
    with pytest.raises(InvalidRequest, match="cannot be told"):
        CommandPolicy(unknown=ALLOW)


def test_the_first_rule_that_fits_decides_and_is_named():
    given = policy((ALLOW, "git status **"), (ASK, "git **"), (DENY, "**"), default=ALLOW)
    decision = judge(given, ["git", "pull"], read_script)
    assert (decision.verdict, decision.rule, decision.program) == (ASK, "rule 1", "git")
    assert decision.why == "it is 'git **'"
    assert verdict(given, "git status -s") is ALLOW
    assert verdict(given, "ls") is DENY


@pytest.mark.parametrize("command", ["", "   ", "git 'push", "x" * 600])
def test_a_rule_without_a_usable_command_is_refused(command):
    with pytest.raises(InvalidRequest, match="rule 'r'"):
        Rule("r", DENY, command)


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(InvalidRequest, match="2 rules, 1 names"):
        CommandPolicy((Rule("a", DENY, "x"), Rule("a", DENY, "y")))


_WORD = st.text("abc-=/. *$'\"", min_size=1, max_size=6)
_ARGV = st.lists(_WORD, min_size=1, max_size=6)


@pytest.mark.proves("E8")
@given(_ARGV, _ARGV)
@example(["*/."], ["."])
def test_a_pattern_of_plain_words_fits_these_words_and_no_others(mine, other):
    allowing = policy((ALLOW, exactly("mine", mine).command))
    # A bare program name is also the one in a usual place; the words here have no such place.
    assert verdict(allowing, mine) is ALLOW
    if other != mine:
        assert verdict(allowing, other) is DENY


@pytest.mark.proves("E8")
@given(_ARGV, st.lists(st.one_of(st.none(), _WORD), max_size=6))
def test_what_shows_only_later_never_passes_an_allowlist_and_never_escapes_a_denial(argv, rest):
    """Whatever the unknown words become, the verdict was not too mild."""
    words = (argv[0], None, *rest)
    read = _reading(words)
    script = ["sh", "-c", "x"]
    became = (argv[0], *argv[1:], *(word for word in rest if word is not None))
    narrow = policy((ALLOW, exactly("it", became).command))
    assert judge(narrow, script, read).verdict is DENY
    broad = policy((DENY, exactly("it", became).command), default=ALLOW)
    assert judge(broad, script, read).verdict is DENY


def _reading(words):
    def read(_text):
        return Script((words,))

    return read


@given(
    st.lists(st.sampled_from(["sh", "-c", "env", "xargs", "timeout", "1", "--", "-x", "A=1", "rm"]))
)
def test_taking_words_apart_always_ends_and_loses_no_program(words):
    found = list(steps(words, read_script))
    assert found
    assert found[0].words == tuple(words)


@given(st.text(max_size=200))
def test_any_text_is_either_read_or_unreadable(text):
    try:
        read_script(text)
    except Unreadable as error:
        assert str(error)


def test_a_policy_is_what_was_kept():
    kept = {
        "rules": [{"name": "r", "verdict": "ask", "command": "git **"}],
        "default": "deny",
        "unknown": "ask",
    }
    made = policy_of(kept)
    assert made == CommandPolicy((Rule("r", ASK, "git **"),), DENY, ASK)
    for broken in (None, [], {}, {**kept, "default": "maybe"}, {**kept, "rules": [{}]}):
        with pytest.raises(InvalidRequest):
            policy_of(broken)


_WORDS = st.lists(st.text(alphabet="ab*?[]!- '\"$\\", max_size=6), max_size=4)


@pytest.mark.proves("E8")
@given(mine=_WORDS, other=_WORDS)
def test_an_exception_is_for_these_words_and_no_others(mine, other):
    asking = policy((ASK, "git **"), default=ASK)
    made = with_exception(asking, exactly("approved", ["git", *mine]), "rule 0")
    assert verdict(made, ["git", *mine]) is ALLOW
    assert (verdict(made, ["git", *other]) is ALLOW) is (mine == other)
    assert verdict(made, ["./git", *mine]) is ASK
    assert verdict(made, ["git", *mine], {"PATH": "/tmp"}) is ASK


@pytest.mark.proves("E8")
def test_an_exception_outweighs_what_asked_and_nothing_before_it():
    asking = policy((DENY, "git push ** --force **"), (ASK, "git push **"), (DENY, "git **"))
    push = ["git", "push", "origin"]
    made = with_exception(asking, exactly("approved", push), "rule 1")
    assert [rule.name for rule in made.rules] == ["rule 0", "approved", "rule 1", "rule 2"]
    assert verdict(made, push) is ALLOW
    forced = ["git", "push", "--force", "origin"]
    made = with_exception(made, exactly("approved too", forced), "rule 1")
    assert verdict(made, forced) is DENY
    by_default = with_exception(policy(default=ASK), exactly("approved", ["ls"]), "")
    assert verdict(by_default, "ls") is ALLOW
    assert verdict(by_default, "ls -l") is ASK
