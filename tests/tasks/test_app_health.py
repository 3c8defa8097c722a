"""The app that an agent worked at is looked at afterwards, and started anew where it has to be."""

import asyncio
import inspect
import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.domain.agent import WorkMode
from paddock.domain.app_health import HealthWish, Web
from paddock.domain.errors import Unavailable
from paddock.domain.guest import GuestAddress
from paddock.domain.reason import Reason
from paddock.domain.task import Phase
from paddock.domain.task import TaskState as S
from paddock.domain.task_rounds import CheckState
from paddock.domain.task_wish import Check, Rounds, Workspace
from paddock.guest_client import Guest
from paddock.guest_client.processes import ProcessState
from paddock.services.app_restarts import changed_files, start_anew
from paddock.services.wishes import Wish
from tests.harness.ports import free_port

pytestmark = [pytest.mark.timeout(120)]
PROGRAM = (Path(inspect.getfile(inspect.currentframe())).parent / "app_server.py").read_bytes()
SECRET = "tok/en-of+somebody=0123456789"
BUILD = Check("build", ("test", "-e", "page"))
DONE = {"say": "done"}


class App:
    """A sandbox in which an app is supervised."""

    def __init__(self, working, sandbox, home):
        self.working = working
        self.sandbox = sandbox
        self.home = home
        self.place = Workspace(sandbox=sandbox.id, directory="app")
        self.port = free_port()
        self.web = Web(self.port, preset="vite")

    @asynccontextmanager
    async def processes(self):
        async with self.working.plane.services.inside.enter(
            self.working.who, self.sandbox.id, ""
        ) as entered:
            yield entered.guest.processes

    async def supervise(self, name, *argv):
        async with self.processes() as processes:
            await processes.put(name, argv, cwd=self.home)
            await processes.start(name)

    async def state(self, name):
        async with self.processes() as processes:
            return await processes.get(name)

    async def done(self, *steps, **health):
        more = {
            name: health.pop(name) for name in ("checks", "rounds", "env", "mode") if name in health
        }
        wish = HealthWish(**{"within_s": 30.0, **health})
        return await self.working.done(*steps, workspace=self.place, health=wish, **more)


@pytest.fixture(scope="module")
async def app(working):
    """Its web server, a worker that runs, and one that ends whenever it is started."""
    services = working.plane.services
    sandbox = await services.sandboxes.create(working.who, Wish(template="plain"))
    async with services.inside.enter(working.who, sandbox.id, "") as entered:
        ran = await entered.guest.exec(("sh", "-c", "mkdir -p ~/app && cd && pwd"))
        home = ran.stdout.decode().strip()
        await entered.guest.files.write(f"{home}/server.py", PROGRAM)
    made = App(working, sandbox, home)
    await made.supervise("hopeless", "sh", "-c", "test -e app/fixed && exec sleep 300; exit 3")
    await made.supervise("web", "python3", "server.py", str(made.port), f"{home}/app")
    await made.supervise("steady", "sleep", "300")
    yield made
    await services.sandboxes.delete(working.who, sandbox.id, force=True)


@pytest.mark.proves("T11")
async def test_an_app_that_answers_is_healthy_and_nothing_is_started_anew_for_nothing(app):
    before = await app.state("web")
    task = await app.done(
        {"write": ["page", "1"]},
        DONE,
        web=app.web,
        workers=("steady", "nobody"),
        build="build",
        restart=("web", "no-one"),
        checks=(BUILD,),
    )
    assert task.state is S.COMPLETED, task.detail
    found = task.result.health
    assert (found.is_well, found.preview_ok, found.build) == (True, True, CheckState.PASSED)
    assert (found.web.status, found.restarted, found.changed) == (200, (), ())
    assert [each.state for each in found.workers] == ["running", "absent"]
    assert (await app.state("web")).pid == before.pid
    # What is not there is said, though the app is well without it.
    nobody, no_one = found.errors
    assert "there is no process nobody" in nobody
    assert "no process no-one" in no_one
    shown = (await app.working.plane.admin.get(f"/v1/tasks/{task.id}")).body
    assert shown["result"]["health"]["preview"] == {
        "port": app.port,
        "path": "/",
        "status": 200,
        "error": None,
    }
    assert "vite.config.*" in shown["health"]["restart_on"]
    (told,) = await app.working.events(task, "task.health")
    assert (told.data["healthy"], told.data["preview_ok"]) == (True, True)


@pytest.mark.proves("T11")
async def test_where_nothing_listens_the_app_is_not_healthy_and_that_counts_like_a_check(app):
    task = await app.done(DONE, web=Web(free_port()), within_s=1.0)
    assert (task.state, task.reason) == (S.FAILED, Reason.CHECKS_FAILED)
    assert "these checks fail: app health" in task.detail
    assert (task.result.health.preview_ok, task.result.health.web.status) == (False, None)
    assert "nothing listens there" in task.result.health.errors[0]


async def test_no_redirect_is_followed_and_a_page_that_fails_or_is_not_there_is_no_answer(app):
    task = await app.done(DONE, web=Web(app.port, "/moved"))
    assert (task.state, task.result.health.web.status) == (S.COMPLETED, 302)
    gone = await app.done(DONE, web=Web(app.port, "/not-there"), within_s=1.0)
    assert (gone.state, gone.result.health.web.status) == (S.FAILED, 404)
    assert "/not-there answers 404" in gone.result.health.errors[0]
    fails = await app.done(DONE, web=Web(app.port, "/fails"), within_s=1.0)
    (error,) = fails.result.health.errors
    assert "/fails answers 500: Internal error – no such table" in error


@pytest.mark.proves("T11")
async def test_workers_alone_make_an_app_and_nobody_speaks_of_its_preview(app):
    task = await app.done(DONE, workers=("steady",), build="slow", checks=(SLOW,))
    found = task.result.health
    assert (found.is_well, found.preview_ok, found.build) == (True, None, CheckState.UNKNOWN)
    shown = (await app.working.plane.admin.get(f"/v1/tasks/{task.id}")).body["result"]["health"]
    assert (shown["preview_ok"], shown["preview"]) == (None, None)
    (told,) = await app.working.events(task, "task.health")
    assert "preview_ok" not in told.data
    lost = await app.done(DONE, workers=("nobody",), rounds=Rounds(5))
    assert (lost.state, lost.reason) == (S.FAILED, Reason.SURROUNDINGS)
    assert "app health" in lost.detail
    assert len(lost.rounds) == 1


SLOW = Check("slow", ("sleep", "60"), 0.2)


@pytest.mark.proves("T11")
async def test_a_failed_build_is_no_healthy_app_whatever_answers(app):
    task = await app.done(DONE, web=app.web, build="no", checks=(Check("no", ("false",)),))
    found = task.result.health
    assert (found.is_well, found.preview_ok, found.build) == (False, True, CheckState.FAILED)
    assert found.errors == ("its build fails",)


@pytest.mark.proves("T11")
async def test_an_agent_is_told_which_asset_fails_and_tries_until_its_app_is_healthy(app):
    task = await app.done(
        {"run": 'mkdir -p src && echo "@bad $DEPLOY_TOKEN" > src/main.tsx'},
        {"end": "I think so"},
        {"echo": True},
        {"run": "echo good > src/main.tsx"},
        DONE,
        web=app.web,
        rounds=Rounds(3),
        env={"DEPLOY_TOKEN": SECRET},
        within_s=1.0,
    )
    assert (task.state, len(task.result.rounds)) == (S.COMPLETED, 2), task.detail
    assert task.result.health.is_well
    bad, good = await app.working.events(task, "task.health")
    assert (bad.data["healthy"], good.data["healthy"]) == (False, True)
    (error,) = bad.data["errors"]
    assert "/src/main.tsx answers 500: [postcss] Unknown word: @bad (DEPLOY_TOKEN)" in error
    assert len(error) < 430
    assert SECRET not in json.dumps([each.data for each in await app.working.events(task)])
    assert SECRET not in repr(task.result)
    told = await app.working.said(task)
    assert any("The app is not healthy" in each and "[postcss]" in each for each in told)
    rounds = [each.data for each in await app.working.events(task, "task.round")]
    assert [each["failed"] for each in rounds] == [["app health"], []]


@pytest.mark.proves("T11")
async def test_an_asset_is_only_asked_for_where_the_preset_has_it(app):
    task = await app.done(
        {"write": ["src/index.css", "@bad"]}, DONE, web=Web(app.port), within_s=1.0
    )
    assert task.state is S.COMPLETED, task.detail
    await app.done({"write": ["src/index.css", "fine"]}, DONE, web=app.web)


@pytest.mark.proves("T11")
async def test_what_reads_a_changed_config_only_at_its_start_is_started_anew(app):
    before = await app.state("web")
    broken = await app.done(
        {"write": ["vite.config.ts", "broken"]},
        DONE,
        workers=("steady",),
        restart=("web",),
        restart_on=("vite.config.*",),
    )
    assert broken.result.health.restarted == ("web",)
    task = await app.done(
        {"write": ["vite.config.ts", "right"]}, DONE, web=app.web, restart=("web",)
    )
    found = task.result.health
    assert (task.state, found.is_well) == (S.COMPLETED, True), found
    assert (found.restarted, found.changed) == (("web",), ("vite.config.ts",))
    after = await app.state("web")
    assert after.pid != before.pid
    assert after.restarts == before.restarts


@pytest.mark.proves("T11")
async def test_what_an_agent_that_failed_left_behind_is_looked_at_too(app):
    steps = ({"write": ["vite.config.ts", "also right"]}, {"fail": "no more"})
    task = await app.done(*steps, web=app.web, build="build", restart=("web",), checks=(BUILD,))
    found = task.result.health
    assert (task.state, task.reason) == (S.FAILED, Reason.AGENT_ERROR)
    assert (found.is_well, found.build, found.restarted) == (True, CheckState.UNKNOWN, ("web",))
    assert [each.state for each in task.result.checks] == [CheckState.UNKNOWN]


@pytest.mark.parametrize("most", [1, 2])
async def test_what_an_agent_was_not_to_change_is_put_back_before_its_app_is_looked_at(app, most):
    await app.done({"write": ["vite.config.ts", "right"]}, DONE, web=app.web, restart=("web",))
    before = await app.state("web")
    task = await app.done(
        {"write": ["vite.config.ts", "broken"]},
        {"fail": "no more"},
        web=app.web,
        restart=("web",),
        mode=WorkMode.EXPLORE,
        rounds=Rounds(most),
        within_s=5.0,
    )
    found = task.result.health
    assert (task.state, task.result.reverted) == (S.FAILED, ("vite.config.ts",)), task.detail
    assert (found.is_well, found.restarted, found.changed) == (True, (), ()), found
    assert (await app.state("web")).pid == before.pid


async def test_only_what_was_started_anew_is_told_as_such(app):
    before = await app.state("steady")
    async with app.processes() as processes:
        restarted, refused = await start_anew(processes, ["gone", "steady"])
    assert (restarted, refused) == (
        ["steady"],
        ["process gone was not started anew: there is no process gone"],
    )
    assert (await app.state("steady")).pid != before.pid


async def test_a_start_that_may_go_well_the_next_time_is_tried_again(tmp_path):
    async with Guest(GuestAddress(socket=str(tmp_path / "nobody"))) as guest:
        with pytest.raises(Unavailable):
            await start_anew(guest.processes, ["web"])


async def test_nobody_looks_for_changed_files_when_the_time_is_up(app):
    task = await app.done({"write": ["vite.config.ts", "right again"]}, DONE, web=app.web)
    services = app.working.plane.services
    async with services.inside.enter(app.working.who, app.sandbox.id, "") as entered:
        assert await changed_files(task, entered.guest) == ["vite.config.ts"]
        for left in (-1.0, 0.0, 0.0001):
            assert await changed_files(task, entered.guest, left) == []


async def test_who_cancels_a_task_does_not_wait_for_its_app(app):
    health = HealthWish(Web(free_port()), within_s=300.0)
    task = await app.working.begin(DONE, workspace=app.place, health=health)
    await app.working.until(task, lambda now: now.phase is Phase.HEALTH_CHECK)
    await app.working.tasks.cancel(app.working.who, task.id)
    ended = await app.working.ended(task)
    assert (ended.state, ended.result.health) == (S.CANCELLED, None)
    assert not await app.working.events(task, "task.health")


@pytest.mark.proves("T11")
@pytest.mark.slow
async def test_a_process_that_was_given_up_comes_back_once_the_agent_has_mended_it(app):
    async with asyncio.timeout(60):
        while (await app.state("hopeless")).state is not ProcessState.GAVE_UP:
            await asyncio.sleep(0.1)
    bad = await app.done(DONE, workers=("hopeless",), within_s=1.0)
    assert (bad.state, bad.result.health.restarted) == (S.FAILED, ("hopeless",))
    (error,) = bad.result.health.errors
    assert "process hopeless is " in error
    assert "it last ended with 3" in error
    task = await app.done({"write": ["fixed", "1"]}, DONE, workers=("hopeless",))
    assert (task.state, task.result.health.is_well) == (S.COMPLETED, True), task.result
    assert task.result.health.changed == ()
    assert (await app.state("hopeless")).state is ProcessState.RUNNING


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "neither a port nor a worker"),
        ({"web": {"port": 70000}}, "port"),
        ({"web": {"port": 80, "preset": "webpack"}}, "no preset 'webpack'; known is: vite"),
        ({"web": {"port": 80, "path": "http://elsewhere/"}}, "must begin with /"),
        ({"workers": ["a b"]}, "process 'a b'"),
        ({"workers": ["a"], "build": "no"}, "the task has none"),
        ({"workers": ["a"], "restart": ["a"], "restart_on": ["/etc/*"]}, "not within"),
        ({"workers": ["a"], "restart_on": ["x"]}, "does not say what"),
        ({"workers": ["a"], "within_s": 301}, "300"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_is_made(working, wrong, said):
    before = await working.plane.admin.get("/v1/tasks?limit=1")
    wish = {"prompt": "Do it.", "agent": "scripted", "template": "plain", "health": wrong}
    refused = await working.plane.admin.post("/v1/tasks", wish)
    assert 400 <= refused.status < 500, refused.body
    assert said in json.dumps(refused.body)
    assert refused.error["remediation"]
    assert (await working.plane.admin.get("/v1/tasks?limit=1")).body == before.body
