"""The unmodified code interpreter SDK: contexts, streams, rich results, languages."""

import base64
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2b import NotFoundException, TimeoutException

from tests.interfaces.e2b.conftest import Live
from tests.interfaces.e2b.patient import Patient, plain

pytestmark = [pytest.mark.timeout(900)]
# The first run on a machine builds the template.


@pytest.fixture(scope="module")
def box(live: Live, interpreter: None):
    made = Patient.create(timeout=300, **live.options)
    yield made
    made.kill()


def test_a_cell_has_a_result_and_remembers(box):
    assert box.run_code("x = 41\nx + 1").text == "42"
    done = box.run_code("print('out'); import sys; print('err', file=sys.stderr); x")
    assert (done.text, done.logs.stdout, done.logs.stderr) == ("41", ["out\n"], ["err\n"])
    assert done.execution_count == 2


def test_output_is_heard_as_it_comes(box):
    heard = []

    def go_on(said):
        heard.append(said.line)
        box.files.write(f"/tmp/heard-{said.line.strip()}", "")

    box.run_code(
        "import os, time\nfor n in range(3):\n"
        "    print(n, flush=True)\n"
        "    while not os.path.exists(f'/tmp/heard-{n}'): time.sleep(0.01)",
        on_stdout=go_on,
    )
    assert heard == ["0\n", "1\n", "2\n"]


def test_an_error_has_a_name_and_a_traceback(box):
    done = box.run_code("def f(): return 1 / 0\nf()")
    assert (done.error.name, done.error.value) == ("ZeroDivisionError", "division by zero")
    told = plain(done.error.traceback)
    assert "def f(): return 1 / 0" in told
    assert "ZeroDivisionError: division by zero" in told
    assert box.run_code("'still here'").text == "still here"


def test_results_are_rich(box):
    done = box.run_code(
        "from IPython.display import display, HTML, JSON, Markdown\n"
        "display(HTML('<b>bold</b>')); display(JSON({'a': 1})); display(Markdown('# t'))"
    )
    assert done.results[0].html == "<b>bold</b>"
    assert done.results[1].json == {"a": 1}
    assert done.results[2].markdown == "# t"


def test_a_plot_is_a_picture_and_a_frame_a_table(box):
    done = box.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()")
    pictures = [each.png for each in done.results if each.png]
    assert base64.b64decode(pictures[0]).startswith(b"\x89PNG")
    frame = box.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})").results[0]
    assert "<table" in frame.html


CHARTS = {
    "line": "ax.plot([1, 2], [3, 4.5], label='grows'); ax.set(xlabel='time (s)', title='t')",
    "scatter": "ax.scatter([1, 2], [3, 4], label='dots')",
    "bar": "ax.bar(['a', 'b'], [1, 2], label='both')",
    "pie": "ax.pie([1, 3], labels=['a', 'b'])",
    "box_and_whisker": "ax.boxplot([[1, 2, 3, 4, 50]])",
}


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_is_also_what_is_in_it(box, kind):
    code = f"import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n{CHARTS[kind]}\nplt.show()"
    (shown,) = [each for each in box.run_code(code).results if each.png]
    chart = shown.chart
    assert chart.type.value == kind
    (first, *rest) = chart.elements
    if kind == "line":
        assert (chart.title, chart.x_label, chart.x_unit) == ("t", "time (s)", "s")
        assert (first.label, first.points) == ("grows", [(1, 3), (2, 4.5)])
        assert chart.x_scale.value == "linear"
        assert len(chart.x_ticks) == len(chart.x_tick_labels)
    elif kind == "scatter":
        assert (first.label, first.points) == ("dots", [(1, 3), (2, 4)])
    elif kind == "bar":
        bars = [(each.label, each.value, each.group) for each in (first, *rest)]
        assert bars == [("a", 1, "both"), ("b", 2, "both")]
    elif kind == "pie":
        assert [(each.label, round(each.angle)) for each in (first, *rest)] == [
            ("a", 90),
            ("b", 270),
        ]
    else:
        assert (first.first_quartile, first.median, first.third_quartile) == (2, 3, 4)
        assert (first.min, first.max, first.outliers) == (1, 4, [50])


def test_several_axes_dates_and_names(box):
    done = box.run_code(
        "import matplotlib.pyplot as plt, datetime\n"
        "fig, (one, two) = plt.subplots(1, 2); fig.suptitle('both')\n"
        "days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]\n"
        "one.plot(days, [1, 2]); two.plot(['x', 'y'], [1, 2]); plt.show()"
    )
    chart = next(each.chart for each in done.results if each.png)
    assert (chart.type.value, chart.title) == ("superchart", "both")
    dated, named = chart.elements
    assert (dated.x_scale.value, named.x_scale.value) == ("datetime", "categorical")
    assert dated.elements[0].points[0][0].startswith("2024-01-01")
    assert [x for x, _ in named.elements[0].points] == ["x", "y"]


def test_a_frame_is_also_its_columns(box):
    code = (
        "import pandas as pd\n"
        "pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': pd.to_datetime(['2024-01-01'] * 2)})"
    )
    shown = box.run_code(code).results[0]
    assert shown.data["a"] == [1, 2]
    assert shown.data["b"] == ["x", None]
    assert shown.data["c"][0].startswith("2024-01-01T00:00")
    assert "<table" in shown.html
    assert box.run_code("[name for name in dir() if 'chart' in name.lower()]").text == "[]"


def test_contexts_are_apart_and_can_be_restarted_and_removed(box):
    context = box.create_code_context(cwd="/tmp", language="python")
    box.run_code("where = 'inside'", context=context)
    assert box.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    assert box.run_code("where").error.name == "NameError"
    assert context.id in {each.id for each in box.list_code_contexts()}
    box.restart_code_context(context)
    assert box.run_code("where", context=context).error.name == "NameError"
    box.remove_code_context(context)
    with pytest.raises(NotFoundException):
        box.run_code("1", context=context)


def test_bash(box):
    assert box.run_code("v=kept; cd /etc", language="bash").error is None
    assert "".join(box.run_code("echo $v; pwd", language="bash").logs.stdout) == "kept\n/etc\n"
    failed = box.run_code("ls /nowhere", language="bash")
    assert failed.error.value == "exit status 2"
    assert "No such file" in "".join(failed.logs.stderr)
    with pytest.raises(Exception, match="no kernel for cobol"):
        box.run_code("x", language="cobol")


@pytest.mark.slow
def test_javascript(box):
    assert box.run_code("const a = 40; a + 2", language="javascript").text == "42"
    done = box.run_code("console.log('said', await Promise.resolve(a)); ({b: [1]})", language="js")
    assert done.logs.stdout == ["said 40\n"]
    assert done.results[0].json == {"b": [1]}
    assert (
        box.run_code("throw new TypeError('no')", language="javascript").error.name == "TypeError"
    )


LATER = {
    "rejects": "setTimeout(() => Promise.reject(new Error('left behind')), 700); 1",
    "throws": "setTimeout(() => { throw new Error('left behind') }, 700); 1",
}
SLEEP = "await new Promise((done) => setTimeout(done, 2000));"


@pytest.mark.slow
@pytest.mark.parametrize("case", LATER)
def test_what_an_earlier_cell_left_behind_fails_no_other(box, case):
    context = box.create_code_context(language="javascript")
    assert box.run_code(LATER[case], context=context).text == "1"
    done = box.run_code(f"{SLEEP} 2", context=context)
    assert (done.text, done.error) == ("2", None)
    assert "left behind" in "".join(done.logs.stderr)
    assert box.run_code("3", context=context).text == "3"
    box.remove_code_context(context)


@pytest.mark.slow
def test_what_comes_of_a_cell_after_it_has_failed_is_no_others_result(box):
    context = box.create_code_context(language="javascript")
    failed = box.run_code(f"Promise.reject(new Error('own')); {SLEEP} 'late'", context=context)
    assert failed.error.value == "own"
    assert box.run_code(f"{SLEEP} {SLEEP} 'next'", context=context).text == "next"
    box.remove_code_context(context)


SHOW_VARIABLE = {
    "python": "import os; print(os.environ.get('V'))",
    "bash": "echo ${V-None}",
    "javascript": "console.log(process.env.V || 'None')",
}


@pytest.mark.parametrize(
    "language", ["python", "bash", pytest.param("javascript", marks=pytest.mark.slow)]
)
def test_variables_are_for_one_cell(box, language):
    code = SHOW_VARIABLE[language]
    done = box.run_code(code, language=language, envs={"V": "1"})
    assert done.logs.stdout == ["1\n"]
    assert box.run_code(code, language=language).logs.stdout == ["None\n"]


def test_variables_that_were_there_come_back_after_a_cell(box):
    box.run_code("import os; os.environ['V'] = 'before'")
    box.run_code("pass", envs={"V": "1", "PATH": "/nowhere"})
    done = box.run_code("print(os.environ.pop('V'), os.environ['PATH'] == '/nowhere')")
    assert done.logs.stdout == ["before False\n"]


def test_who_gives_up_while_a_kernel_starts_breaks_nothing(live: Live, interpreter: None):
    with Patient.create(timeout=300, **live.options) as fresh:
        with pytest.raises(TimeoutException):
            fresh.run_code("echo early", language="bash", timeout=0.05)
        done = fresh.run_code("echo late", language="bash", timeout=60)
        assert done.logs.stdout[-1] == "late\n"


def test_a_cell_whose_context_is_restarted_ends_with_an_error(box):
    context = box.create_code_context()
    begun = threading.Event()
    with ThreadPoolExecutor(1) as aside:
        code = "print('begun', flush=True)\nwhile True: pass"
        running = aside.submit(box.run_code, code, context=context, on_stdout=lambda _: begun.set())
        assert begun.wait(30)
        box.restart_code_context(context)
        assert running.result(30).error.name == "KernelRestarted"
    assert box.run_code("1 + 1", context=context).text == "2"
    box.remove_code_context(context)


@pytest.mark.slow
def test_much_output_of_javascript_is_whole_and_of_its_own_cell(box):
    done = box.run_code("console.log('é'.repeat(500_000))", language="javascript")
    assert "".join(done.logs.stdout) == "é" * 500_000 + "\n"
    assert "".join(box.run_code("console.log(1)", language="javascript").logs.stdout) == "1\n"


@pytest.mark.parametrize(
    "lines",
    [
        3_000,
        pytest.param(8_000, marks=pytest.mark.soak),
        pytest.param(25_000, marks=pytest.mark.soak),
    ],
)
def test_much_output_is_whole(box, lines):
    """Each line is a message of its own. They come faster than they are passed on."""
    done = box.run_code(f"for n in range({lines}): print(n, flush=True)", timeout=120)
    assert "".join(done.logs.stdout).split() == [str(n) for n in range(lines)]


@pytest.mark.slow
def test_answers_that_nobody_needs_are_not_kept(box):
    """What is to be the next cell's text is in the answer to a cell."""
    server = "ps -o rss= -p $(pgrep -f '^python3 [^ ]*/paddock-interpreter.zip$')"
    context = box.create_code_context()
    before = int(box.commands.run(server).stdout)
    for _ in range(30):
        box.run_code("get_ipython().set_next_input('x' * 10_000_000)", context=context)
    assert int(box.commands.run(server).stdout) - before < 150_000
    box.remove_code_context(context)


def test_a_kernel_that_dies_is_started_anew(box):
    context = box.create_code_context()
    done = box.run_code("import os; os._exit(1)", context=context)
    assert done.error.name == "KernelDied"
    assert box.run_code("1 + 1", context=context).text == "2"
    box.remove_code_context(context)


def test_nobody_runs_code_without_the_token(box, live):
    request = urllib.request.Request(
        f"{live.url}/execute",
        b'{"code": "1"}',
        {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49999"},
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=10)


VARIABLES = {
    "python": ("n = 41", "print(n + 1)"),
    "bash": ("n=41", "echo $((n + 1))"),
    "javascript": ("let n = 41", "console.log(n + 1)"),
}


@pytest.mark.parametrize(
    "languages",
    [("python", "bash"), pytest.param(tuple(VARIABLES), marks=pytest.mark.slow)],
    ids=["few", "all"],
)
def test_it_survives_a_pause_with_all_its_variables(box, languages):
    contexts = {each: box.create_code_context(language=each) for each in languages}
    for language, context in contexts.items():
        box.run_code(VARIABLES[language][0], context=context)
    box.pause()
    box.connect(timeout=300)
    for language, context in contexts.items():
        done = box.run_code(VARIABLES[language][1], context=context)
        assert done.logs.stdout == ["42\n"], language
        box.remove_code_context(context)
