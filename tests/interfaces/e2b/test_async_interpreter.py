"""The code interpreter by the SDK's asynchronous half."""

import asyncio
import base64

import pytest
from e2b import NotFoundException, TimeoutException

from tests.interfaces.e2b.conftest import Live
from tests.interfaces.e2b.patient import AsyncPatient, plain

pytestmark = [pytest.mark.timeout(900)]
# The first run on a machine builds the template.


@pytest.fixture(scope="module")
async def box(live: Live, interpreter: None):
    made = await AsyncPatient.create(timeout=300, **live.options)
    yield made
    await made.kill()


async def test_a_cell_has_a_result_and_remembers_also_over_a_pause(box):
    assert (await box.run_code("x = 41\nx + 1")).text == "42"
    done = await box.run_code("import sys; print('out'); print('err', file=sys.stderr); x")
    assert (done.text, done.logs.stdout, done.logs.stderr) == ("41", ["out\n"], ["err\n"])
    await box.pause()
    await box.connect(timeout=120)
    assert (await box.run_code("x += 1; x")).text == "42"


async def test_what_happens_is_heard_as_it_comes(box):
    heard = []

    async def waited(name, said):
        await asyncio.sleep(0)
        heard.append((name, said))

    async def go_on(line):
        await waited("out", line)
        await box.files.write("/tmp/heard", "")

    done = await box.run_code(
        "import os, sys, time\nprint(1, flush=True)\n"
        "while not os.path.exists('/tmp/heard'): time.sleep(0.01)\n"
        "print(2, file=sys.stderr)\ndisplay(3)\n1 / 0",
        on_stdout=lambda said: go_on(said.line),
        on_stderr=lambda said: waited("err", said.line),
        on_result=lambda result: waited("result", result.text),
        on_error=lambda error: waited("error", error.name),
    )
    assert heard == [
        ("out", "1\n"),
        ("err", "2\n"),
        ("result", "3"),
        ("error", "ZeroDivisionError"),
    ]
    assert (done.error.name, done.error.value) == ("ZeroDivisionError", "division by zero")


@pytest.mark.slow
async def test_an_error_has_a_traceback(box):
    done = await box.run_code("def divide(): return 1 / 0\ndivide()")
    told = plain(done.error.traceback)
    assert "def divide(): return 1 / 0" in told
    assert "ZeroDivisionError: division by zero" in told
    thrown = await box.run_code("function f() { throw new TypeError('no') }\nf()", language="js")
    assert (thrown.error.name, thrown.error.value) == ("TypeError", "no")
    assert "at f " in thrown.error.traceback


@pytest.mark.slow
async def test_results_are_rich(box):
    done = await box.run_code(
        "from IPython.display import display, HTML, JSON\n"
        "display(HTML('<b>bold</b>')); display(JSON({'a': 1}))"
    )
    assert (done.results[0].html, done.results[1].json) == ("<b>bold</b>", {"a": 1})
    done = await box.run_code(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4]); plt.show()"
    )
    (shown,) = [each for each in done.results if each.png]
    assert base64.b64decode(shown.png).startswith(b"\x89PNG")
    assert shown.chart.elements[0].points == [(1, 3), (2, 4)]
    frame = (await box.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})")).results[0]
    assert "<table" in frame.html
    assert frame.data == {"a": [1, 2]}


@pytest.mark.slow
async def test_contexts_are_apart_run_at_once_and_are_restarted_and_removed(box):
    first = await box.create_code_context(cwd="/tmp")
    second = await box.create_code_context(language="bash")
    await box.run_code("where = 'inside'", context=first)
    assert (await box.run_code("import os; os.getcwd()", context=first)).text == "/tmp"
    assert (await box.run_code("where")).error.name == "NameError"
    slow = "import time; began = time.time(); time.sleep(1); (began, time.time())"
    one, other = await asyncio.gather(
        box.run_code(slow, context=first),
        box.run_code("date +%s.%N; sleep 1; date +%s.%N", context=second),
    )
    began, ended = (float(each) for each in one.text.strip("()").split(","))
    others = [float(each) for each in "".join(other.logs.stdout).split()]
    assert max(began, others[0]) < min(ended, others[1])
    assert {first.id, second.id} <= {each.id for each in await box.list_code_contexts()}
    await box.restart_code_context(first)
    assert (await box.run_code("where", context=first)).error.name == "NameError"
    await box.remove_code_context(first)
    with pytest.raises(NotFoundException):
        await box.run_code("1", context=first)


@pytest.mark.slow
async def test_a_cell_that_takes_too_long_is_interrupted_in_any_language(box):
    for language, first, endless, asked in (
        ("python", "kept = 5", "while True: pass", "print(kept)"),
        ("javascript", "let kept = 5", "while (true) {}", "console.log(kept)"),
        ("bash", "kept=5", "sleep 100", "echo $kept"),
    ):
        await box.run_code(first, language=language)
        with pytest.raises(TimeoutException):
            await box.run_code(endless, language=language, timeout=2)
        assert (await box.run_code(asked, language=language)).logs.stdout == ["5\n"]
