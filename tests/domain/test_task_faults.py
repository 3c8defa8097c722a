"""Whose fault a failure is, by what programs and agents really say."""

import pytest

from paddock.domain.task_faults import Fault, fault_of_agent, fault_of_check

CHECKS = [
    (1, "FAILED tests/test_a.py::test_total - assert 3 == 4", "pytest", Fault.CODE),
    (2, "src/a.c:3:5: error: expected ';' before 'return'", "make", Fault.CODE),
    (1, "AssertionError: expected 401 to equal 200", "npm", Fault.CODE),
    (1, "Error: connect ECONNREFUSED 127.0.0.1:3000", "npm", Fault.CODE),
    (1, "ModuleNotFoundError: No module named 'shop'", "python3", Fault.CODE),
    (139, "Segmentation fault (core dumped)", "./a.out", Fault.CODE),
    (127, "/bin/sh: 1: pytest: not found", "/bin/sh", Fault.COMMAND),
    (127, "bash: line 1: cargo: command not found", "bash", Fault.COMMAND),
    (127, "it could not be started: there is no program 'ruff'", "ruff", Fault.COMMAND),
    (126, "/bin/sh: 1: /usr/bin/thing: Permission denied", "/bin/sh", Fault.COMMAND),
    (127, "/bin/sh: 1: ./run-tests.sh: not found", "/bin/sh", Fault.CODE),
    (127, "it could not be started: there is no program", "./run-tests.sh", Fault.CODE),
    (126, "it could not be started: cannot execute ./go: permission denied", "./go", Fault.CODE),
    (1, "curl: (6) Could not resolve host: pypi.example", "curl", Fault.NETWORK),
    (1, "packages.example:443 cannot be reached from this sandbox: no rule", "curl", Fault.NETWORK),
    (1, "npm error code EAI_AGAIN", "npm", Fault.NETWORK),
    (100, "W: Failed to fetch x  Temporary failure resolving 'deb.x'", "apt-get", Fault.NETWORK),
    (
        128,
        "fatal: could not read Username for 'https://x': No such device",
        "git",
        Fault.CREDENTIAL,
    ),
    (128, "git@x: Permission denied (publickey).", "git", Fault.CREDENTIAL),
    (1, "OSError: [Errno 28] No space left on device", "pytest", Fault.DISK),
    (1, "npm error code ENOSPC", "npm", Fault.DISK),
    (1, "fork: Cannot allocate memory", "make", Fault.MEMORY),
]
AGENTS = [
    ('API Error: 401 {"type":"error","error":{"message":"invalid x-api-key"}}', Fault.CREDENTIAL),
    (
        "There's an issue with the selected model (claude-x). It may not exist or you may not have "
        "access to it.",
        Fault.MODEL,
    ),
    ("Your credit balance is too low to access the Anthropic API", Fault.LIMIT),
    ("exceeded retry limit, last status: 429 Too Many Requests", Fault.LIMIT),
    ("the spend limit of 2.00 USD for task tsk_1 is reached", Fault.LIMIT),
    ("API Error: 529 overloaded_error", Fault.MODEL),
    ("unexpected status 503 Service Unavailable", Fault.MODEL),
    ("stream disconnected before completion: error sending request", Fault.NETWORK),
    ("Not logged in · Please run /login", Fault.CREDENTIAL),
    ("it ended with 7: it went wrong", None),
    ("no output: it ended with 0 and did nothing", None),
]


@pytest.mark.proves("T17")
@pytest.mark.parametrize(("code", "said", "program", "fault"), CHECKS)
def test_a_check_that_failed_says_whose_fault_it_is(code, said, program, fault):
    assert fault_of_check(code, said, program=program, has_answered=True) is fault


@pytest.mark.proves("T17")
@pytest.mark.parametrize(("why", "fault"), AGENTS)
def test_an_agent_that_failed_says_whose_fault_it_is(why, fault):
    assert fault_of_agent(why) is fault


@pytest.mark.proves("T17")
def test_in_doubt_it_is_the_surroundings():
    found = fault_of_check(124, "testing…", program="pytest", has_answered=False)
    assert found is Fault.UNKNOWN
    assert found.is_surroundings
    assert not Fault.CODE.is_surroundings
