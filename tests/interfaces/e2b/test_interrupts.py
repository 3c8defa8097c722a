"""Cells of the code interpreter that take too long end, and their context remembers all else."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import TimeoutException

from tests.interfaces.e2b.conftest import Live
from tests.interfaces.e2b.patient import Patient

pytestmark = [pytest.mark.timeout(900)]
# The first run on a machine builds the template.
ENDLESS = {
    "python": ("kept = 5", "import time\nprint('begun')\nwhile True: time.sleep(1)", "print(kept)"),
    "python that prints": ("kept = 5", "while True: print('begun', flush=True)", "print(kept)"),
    "bash": ("kept=5", "echo begun; sleep 100; echo never", "echo $kept"),
    "javascript": ("let kept = 5", "console.log('begun'); while (true) {}", "console.log(kept)"),
    "javascript that prints": (
        "let kept = 5",
        "for (;;) console.log('begun')",
        "console.log(kept)",
    ),
    "javascript that awaits": (
        "let kept = 4",
        "kept = 5; console.log('begun'); await new Promise(() => {})",
        "console.log(kept)",
    ),
    "javascript that awaits within": (
        "let kept = 5",
        "(async () => { await 1 })(); console.log('begun'); while (true) {}",
        "console.log(kept)",
    ),
}
"""Cells that print `begun` and never end."""
CASES = [
    pytest.param(case, marks=pytest.mark.slow if case.startswith("javascript") else ())
    for case in ENDLESS
]
PROMPT_S = 15
"""An interrupted cell ends within this time. It would go on until its time limit."""


@pytest.fixture(scope="module")
def box(live: Live, interpreter: None):
    made = Patient.create(timeout=600, **live.options)
    yield made
    made.kill()


@pytest.fixture
def context_of(box):
    """`context_of(language)` creates a context that is removed after the test."""
    made = []

    def create(language="python"):
        made.append(box.create_code_context(language=language))
        return made[-1]

    yield create
    for context in made:
        box.remove_code_context(context)


class Enough(Exception):
    """The client has heard what it waited for."""


def stop_listening(box, code, context):
    """Close the connection as soon as the cell prints `begun`."""

    def hear(said):
        if "begun" in said.line:
            raise Enough

    with pytest.raises(Enough):
        box.run_code(code, context=context, on_stdout=hear)


def interrupt(box, language):
    """As Jupyter does it: a signal for all processes of the newest kernel of a language."""
    name = f"interpreter.zip {language}"
    # The brackets keep the pattern from finding the shell that it stands in.
    box.commands.run(f"kill -INT -- -$(pgrep -nf '[{name[0]}]{name[1:]}')")


@pytest.mark.parametrize("case", CASES)
def test_who_stops_listening_interrupts_the_cell_and_nothing_is_forgotten(box, context_of, case):
    first, endless, asked = ENDLESS[case]
    context = context_of(case.split()[0])
    box.run_code(first, context=context)
    for _ in range(2):
        stop_listening(box, endless, context)
        done = box.run_code(asked, context=context, timeout=PROMPT_S)
        assert ("".join(done.logs.stdout), done.logs.stderr) == ("5\n", [])


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_cell_ends_with_the_error_of_one(box, context_of, case):
    first, endless, asked = ENDLESS[case]
    language = case.split()[0]
    context = context_of(language)
    box.run_code(first, context=context)
    begun = threading.Event()
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(
            box.run_code, endless, context=context, timeout=60, on_stdout=lambda _: begun.set()
        )
        assert begun.wait(30)
        interrupt(box, language)
        assert running.result(PROMPT_S).error.name == "KeyboardInterrupt"
    assert "".join(box.run_code(asked, context=context).logs.stdout) == "5\n"


STUBBORN = {
    "python": "import time\nwhile True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass",
    # Once a cell has awaited, nothing of Node's stops what runs.
    "javascript": "await 1; while (true) {}",
}


@pytest.mark.slow
@pytest.mark.parametrize("language", STUBBORN)
def test_a_cell_that_heeds_no_interrupt_keeps_nobody_waiting_and_the_next_is_told(
    box, context_of, language
):
    context = context_of(language)
    with pytest.raises(TimeoutException):
        box.run_code(STUBBORN[language], context=context, timeout=3)
    done = box.run_code("1 + 1", context=context, timeout=60)
    assert done.text == "2"
    assert "could not be interrupted" in "".join(done.logs.stderr)
    assert box.run_code("2 + 2", context=context).logs.stderr == []


CHATTY = """
import threading, time
kept = 5
def chatter():
    while True:
        print("chatter", flush=True)
        time.sleep({pause})
threading.Thread(target=chatter, daemon=True).start()
"""


@pytest.mark.parametrize("pause", [0.05, pytest.param(0, marks=pytest.mark.soak)])
def test_a_thread_that_never_stops_printing_keeps_no_context_locked(box, context_of, pause):
    context = context_of()
    box.run_code(CHATTY.format(pause=pause), context=context)
    for _ in range(2):
        stop_listening(box, "print('begun')\nwhile True: time.sleep(1)", context)
        assert box.run_code("kept", context=context, timeout=PROMPT_S).text == "5"


BUSY = "import asyncio, time; kept = 5; asyncio.get_event_loop().call_later(1, time.sleep, 4)"
"""Between cells, when a kernel hears no interrupt."""


@pytest.mark.slow
def test_who_leaves_while_variables_are_set_leaves_none_of_them(box, context_of):
    context = context_of()
    box.run_code(BUSY, context=context)
    time.sleep(1.5)
    with pytest.raises(TimeoutException):
        box.run_code("print('never')", context=context, envs={"SECRET": "s"}, timeout=1)
    done = box.run_code("import os; print(os.environ.get('SECRET'), kept)", context=context)
    assert (done.logs.stdout, done.logs.stderr) == (["None 5\n"], [])


@pytest.mark.slow
def test_a_cell_that_is_taken_after_its_interrupt_is_interrupted_again_and_nothing_is_forgotten(
    box, context_of
):
    context = context_of()
    box.run_code(BUSY, context=context)
    time.sleep(1.5)
    with pytest.raises(TimeoutException):
        box.run_code("while True: time.sleep(1)", context=context, timeout=1)
    done = box.run_code("print(kept)", context=context)
    assert (done.logs.stdout, done.logs.stderr) == (["5\n"], [])


@pytest.mark.slow
def test_a_program_that_takes_a_while_to_heed_an_interrupt_is_let_end(box, context_of):
    context = context_of("bash")
    slow = "trap 'sleep 1.7; exit 0' INT; echo begun; while :; do sleep 0.1; done"
    stop_listening(box, f'kept=5; bash -c "{slow}"', context)
    done = box.run_code("echo $kept", context=context)
    assert ("".join(done.logs.stdout), done.logs.stderr) == ("5\n", [])


@pytest.mark.parametrize(
    ("language", "asked"),
    [
        ("bash", "echo 1"),
        pytest.param("javascript", "console.log(1)", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_between_cells_is_not_heard_of(box, context_of, language, asked):
    context = context_of(language)
    box.run_code(asked, context=context)
    for _ in range(2):
        interrupt(box, language)
    time.sleep(0.5)
    done = box.run_code(asked, context=context)
    assert ("".join(done.logs.stdout), done.logs.stderr, done.error) == ("1\n", [], None)
