"""When an app is healthy, which files it is started anew for, and what an error page says."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.app_health import PRESETS, HealthWish, Web, check_health, expected, meets
from paddock.domain.app_verdict import (
    AppHealth,
    WebSeen,
    WorkerSeen,
    answers_well,
    asset_fails,
    build_of,
    complaint,
    health_again,
)
from paddock.domain.error_page import LONGEST, error_in, shortened
from paddock.domain.errors import InvalidRequest
from paddock.domain.task_faults import Fault
from paddock.domain.task_rounds import Checked, CheckState, Round, with_app
from paddock.domain.task_wish import Check, Rounds, TaskWish, checked

UP, DOWN = WebSeen(80, status=200), WebSeen(80, error="nothing listens there")
RUNS, GONE = WorkerSeen("w", "running"), WorkerSeen("w", "gave_up", 1)


@pytest.mark.proves("T11")
@pytest.mark.parametrize(
    ("web", "worker", "healthy", "preview"),
    [
        (UP, None, True, True),
        (DOWN, None, False, False),
        (None, RUNS, True, None),
        (None, GONE, False, None),
        (DOWN, RUNS, True, False),
        (UP, GONE, True, True),
        (DOWN, GONE, False, False),
        (replace(UP, error="/src/main.tsx answers 500"), None, False, False),
    ],
)
@pytest.mark.parametrize("build", [None, *CheckState])
def test_it_is_healthy_by_its_build_its_preview_and_its_workers(
    web, worker, healthy, preview, build
):
    found = AppHealth(build=build, web=web, workers=(worker,) if worker else ())
    assert found.is_well is (healthy and build is not CheckState.FAILED)
    assert found.preview_ok is preview
    assert ("preview_ok" in found.told()) is (web is not None)
    assert found.fault is (None if found.is_well else Fault.CODE)
    assert found.outcome.state is (CheckState.PASSED if found.is_well else CheckState.FAILED)
    assert health_again(asdict(found)) == found


@pytest.mark.proves("T11")
def test_a_build_that_was_not_run_or_gave_no_answer_has_neither_passed_nor_failed():
    wish = HealthWish(workers=("w",), build="make")
    assert build_of(wish, [Checked("make", 0, state=CheckState.PASSED)]) is CheckState.PASSED
    assert build_of(wish, [Checked("make", 124)]) is CheckState.UNKNOWN
    assert build_of(wish, []) is CheckState.UNKNOWN
    assert build_of(replace(wish, build=""), []) is None


@pytest.mark.parametrize("status", [200, 204, 301, 304, 401, 403])
def test_who_answers_or_asks_who_is_there_answers_well(status):
    assert answers_well(status)
    assert not asset_fails(status)


@pytest.mark.parametrize("status", [100, 400, 404, 429, 500, 503, 599])
def test_an_error_is_no_good_answer_and_of_assets_only_what_cannot_be_made(status):
    assert not answers_well(status)
    assert asset_fails(status) is (status >= 500)


def test_a_process_that_no_sandbox_knows_is_no_fault_of_the_agent():
    absent = AppHealth(workers=(WorkerSeen("w", "absent"),))
    assert absent.fault is Fault.COMMAND
    assert replace(absent, web=DOWN).fault is Fault.CODE
    sure, open_, none = Round(1, 1, fault=Fault.DISK), Round(1, 1, fault=Fault.UNKNOWN), Round(1, 1)
    bad, well = AppHealth(web=DOWN), AppHealth(web=UP)
    assert with_app(sure, bad.outcome, bad.fault).fault is Fault.DISK
    assert with_app(open_, bad.outcome, bad.fault).fault is Fault.CODE
    assert with_app(open_, well.outcome, well.fault).fault is Fault.UNKNOWN
    assert with_app(none, well.outcome, well.fault).is_good
    assert not with_app(none, bad.outcome, bad.fault).is_good


def test_what_is_wrong_is_said_in_words():
    found = AppHealth(build=CheckState.FAILED, web=DOWN, workers=(GONE,), missing=("x",))
    said = complaint(found)
    for part in ("build fails", "port 80: nothing listens", "w is gave_up; it last ended with 1"):
        assert part in said
    assert "no process x" in said
    refused = AppHealth(web=UP, unstarted=("process w was not started anew: why",))
    kept = {**asdict(refused), "build": None}
    assert health_again(kept) == refused
    assert refused.is_well
    assert refused.errors == refused.unstarted
    del kept["unstarted"]  # as it was kept before
    assert health_again(kept).errors == ()
    wish = HealthWish(Web(80), workers=("a", "b"), build="make")
    assert expected(wish) == (
        "port 80 answers / without an error, or one of these processes runs: a, b, and the check "
        "make does not fail"
    )


@pytest.mark.parametrize(
    ("glob", "path", "is_meant"),
    [
        ("vite.config.*", "vite.config.ts", True),
        ("vite.config.*", "web/vite.config.mjs", True),
        ("vite.config.*", "vite.config.d/x.ts", False),
        ("tsconfig*.json", "tsconfig.node.json", True),
        ("src/*.css", "src/a.css", True),
        ("src/*.css", "src/a/b.css", False),
        ("src/**", "src/a/b.css", True),
        ("src/**", "src", False),
        ("**/src/App.css", "src/App.css", True),
        ("**/src/App.css", "a/b/src/App.css", True),
        ("**/src/App.css", "mysrc/App.css", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("[!a]*.js", "b.js", True),
        ("[!a]*.js", "a.js", False),
        ("README", "readme", False),
    ],
)
def test_a_glob_means_what_it_means_to_git(glob, path, is_meant):
    assert meets(glob, path) is is_meant


@pytest.mark.proves("T11")
def test_only_the_files_of_the_preset_start_it_anew_unless_others_are_named():
    vite = HealthWish(Web(80, preset="vite"), restart=("web",))
    changed = ["src/x.tsx", "postcss.config.js", "src/index.css", "README.md", "tailwind.config.ts"]
    assert vite.config_in(changed) == ("postcss.config.js", "src/index.css", "tailwind.config.ts")
    assert replace(vite, restart_on=("*.md",)).config_in(changed) == ("README.md",)
    assert HealthWish(Web(80), restart=("web",)).config_in(changed) == ()
    assert not PRESETS[""].assets


def test_the_time_of_the_task_is_also_that_of_its_app():
    wish = HealthWish(Web(80), within_s=30)
    assert wish.time_for(None, 100.0) == 30
    assert [wish.time_for(end, 100.0) for end in (500.0, 110.0, 90.0)] == [30, 10, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        HealthWish(),
        HealthWish(Web(0)),
        HealthWish(Web(65536)),
        HealthWish(Web(80, "no-slash")),
        HealthWish(Web(80, "/a b")),
        HealthWish(Web(80, "/\r\nX: y")),
        HealthWish(Web(80, preset="next")),
        HealthWish(Web(80), within_s=0),
        HealthWish(Web(80), within_s=float("nan")),
        HealthWish(workers=("",)),
        HealthWish(workers=tuple(f"w{n}" for n in range(33))),
        HealthWish(Web(80), build="lint"),
        *(
            HealthWish(Web(80), restart=("web",), restart_on=(glob,))
            for glob in ("", "/a", "../a", "a//b", "a**", "[a", "a\n", "x" * 257, "**/" * 5 + "a")
        ),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidRequest) as refused:
        check_health(wrong, ["build"])
    assert refused.value.remediation


def test_health_alone_ends_rounds_and_its_name_is_no_checks():
    wish = TaskWish("Do it.", "scripted", health=HealthWish(Web(80)), rounds=Rounds(3))
    assert checked(wish) is wish
    with pytest.raises(InvalidRequest):
        checked(replace(wish, checks=(Check("app health", ("true",)),)))


@pytest.mark.proves("V6")
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<script>const error = {"message":"a \\"b\\" \\u003cc>","stack":"at', 'a "b" <c>'),
        ('{"error": {"message": "no table"}}', "no table"),
        ('{"detail": "x"}', "x"),
        ("<title>Error</title><body><h1>500</h1><pre>TypeError: &lt;x&gt;<br>at y</pre>",
         "500 – TypeError: <x> at y"),
        ("<html><head><title>Bad Gateway</title></head><body></body></html>", "Bad Gateway"),
        ("<style>a{}</style><div>It <b>broke</b></div>", "It broke"),
        ("\x1b[31mboom\x1b[0m\n  at z", "boom at z"),
        ("{not json", "{not json"),
        ("[" * 100_000, "[" * 100_000),
        ("", ""),
    ],
)  # fmt: skip
def test_the_message_of_an_error_page_is_found(page, said):
    assert error_in(page) == said


@given(st.text(alphabet='<>/"{}:\\ script styleprconstem=&;x\n', max_size=300))
def test_whatever_a_page_says_is_one_short_line(page):
    said = shortened(error_in(page))
    assert len(said) <= LONGEST
    assert "\n" not in said
