"""Cells of the code interpreter that take too long end, and their context remembers all else."""

import threading
import time

import pytest
from e2b import TimeoutException

from tests.interfaces.e2b.conftest import Live
from tests.interfaces.e2b.patient import Patient

pytestmark = [pytest.mark.timeout(900)]
# The first run on a machine builds the template.
ENDLESS = {
    "python": ("kept = 5", "import time\nwhile True: time.sleep(1)", "print(kept)"),
    "python that prints": ("kept = 5", "while True: print(1, flush=True)", "print(kept)"),
    "bash": ("kept=5", "sleep 100; echo never", "echo $kept"),
    "javascript": ("let kept = 5", "while (true) {}", "console.log(kept)"),
    "javascript that prints": ("let kept = 5", "for (;;) console.log(1)", "console.log(kept)"),
    "javascript that awaits": (
        "let kept = 4",
        "kept = 5; await new Promise(() => {})",
        "console.log(kept)",
    ),
    "javascript that awaits within": (
        "let kept = 5",
        "(async () => { await 1 })(); while (true) {}",
        "console.log(kept)",
    ),
}


@pytest.fixture(scope="module")
def box(live: Live, interpreter: None):
    made = Patient.create(timeout=300, **live.options)
    yield made
    made.kill()


def interrupt(box, language):
    """As Jupyter does it: a signal for all processes of the newest kernel of a language."""
    name = f"interpreter.zip {language}"
    # The brackets keep the pattern from finding the shell that it stands in.
    box.commands.run(f"kill -INT -- -$(pgrep -nf '[{name[0]}]{name[1:]}')")


@pytest.mark.parametrize("case", ENDLESS)
def test_who_stops_listening_interrupts_the_cell_and_nothing_is_forgotten(box, case):
    first, endless, asked = ENDLESS[case]
    context = box.create_code_context(language=case.split()[0])
    box.run_code(first, context=context)
    for _ in range(2):
        with pytest.raises(TimeoutException):
            box.run_code(endless, context=context, timeout=2)
        began = time.monotonic()
        done = box.run_code(asked, context=context)
        assert ("".join(done.logs.stdout), done.logs.stderr) == ("5\n", [])
        assert time.monotonic() - began < 15
    box.remove_code_context(context)


@pytest.mark.parametrize("case", ENDLESS)
def test_an_interrupted_cell_ends_with_the_error_of_one(box, case):
    first, endless, asked = ENDLESS[case]
    language = case.split()[0]
    context = box.create_code_context(language=language)
    box.run_code(first, context=context)
    ended = []
    running = threading.Thread(
        target=lambda: ended.append(box.run_code(endless, context=context, timeout=60))
    )
    running.start()
    time.sleep(2)
    began = time.monotonic()
    interrupt(box, language)
    running.join(60)
    assert ended[0].error.name == "KeyboardInterrupt"
    assert time.monotonic() - began < 15
    assert "".join(box.run_code(asked, context=context).logs.stdout) == "5\n"
    box.remove_code_context(context)


STUBBORN = {
    "python": "import time\nwhile True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass",
    # Once a cell has awaited, nothing of Node's stops what runs.
    "javascript": "await 1; while (true) {}",
}


@pytest.mark.parametrize("language", STUBBORN)
def test_a_cell_that_heeds_no_interrupt_keeps_nobody_waiting_and_the_next_is_told(box, language):
    context = box.create_code_context(language=language)
    with pytest.raises(TimeoutException):
        box.run_code(STUBBORN[language], context=context, timeout=3)
    done = box.run_code("1 + 1", context=context, timeout=60)
    assert done.text == "2"
    assert "could not be interrupted" in "".join(done.logs.stderr)
    assert box.run_code("2 + 2", context=context).logs.stderr == []
    box.remove_code_context(context)


CHATTY = """
import threading, time
kept = 5
def chatter():
    while True:
        print("chatter", flush=True)
        time.sleep({pause})
threading.Thread(target=chatter, daemon=True).start()
"""


@pytest.mark.parametrize("pause", [0.05, 0])
def test_a_thread_that_never_stops_printing_keeps_no_context_locked(box, pause):
    context = box.create_code_context()
    box.run_code(CHATTY.format(pause=pause), context=context)
    for _ in range(2):
        with pytest.raises(TimeoutException):
            box.run_code("while True: time.sleep(1)", context=context, timeout=2)
        began = time.monotonic()
        assert box.run_code("kept", context=context).text == "5"
        assert time.monotonic() - began < 15
    box.remove_code_context(context)


BUSY = "import asyncio, time; kept = 5; asyncio.get_event_loop().call_later(1, time.sleep, 4)"
"""Between cells, when a kernel hears no interrupt."""


def test_who_leaves_while_variables_are_set_leaves_none_of_them(box):
    context = box.create_code_context()
    box.run_code(BUSY, context=context)
    time.sleep(1.5)
    with pytest.raises(TimeoutException):
        box.run_code("print('never')", context=context, envs={"SECRET": "s"}, timeout=1)
    done = box.run_code("import os; print(os.environ.get('SECRET'), kept)", context=context)
    assert (done.logs.stdout, done.logs.stderr) == (["None 5\n"], [])
    box.remove_code_context(context)


def test_a_cell_that_is_taken_after_its_interrupt_is_interrupted_again_and_nothing_is_forgotten(
    box,
):
    context = box.create_code_context()
    box.run_code(BUSY, context=context)
    time.sleep(1.5)
    with pytest.raises(TimeoutException):
        box.run_code("while True: time.sleep(1)", context=context, timeout=1)
    done = box.run_code("print(kept)", context=context)
    assert (done.logs.stdout, done.logs.stderr) == (["5\n"], [])
    box.remove_code_context(context)


def test_a_program_that_takes_a_while_to_heed_an_interrupt_is_let_end(box):
    context = box.create_code_context(language="bash")
    slow = "trap 'sleep 1.7; exit 0' INT; while :; do sleep 0.1; done"
    with pytest.raises(TimeoutException):
        box.run_code(f'kept=5; bash -c "{slow}"', context=context, timeout=2)
    done = box.run_code("echo $kept", context=context)
    assert ("".join(done.logs.stdout), done.logs.stderr) == ("5\n", [])
    box.remove_code_context(context)


@pytest.mark.parametrize(
    ("language", "asked"), [("bash", "echo 1"), ("javascript", "console.log(1)")]
)
def test_an_interrupt_between_cells_is_not_heard_of(box, language, asked):
    context = box.create_code_context(language=language)
    box.run_code(asked, context=context)
    for _ in range(2):
        interrupt(box, language)
    time.sleep(0.5)
    done = box.run_code(asked, context=context)
    assert ("".join(done.logs.stdout), done.logs.stderr, done.error) == ("1\n", [], None)
    box.remove_code_context(context)
