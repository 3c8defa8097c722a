"""Rules of the guardian that are not Paddock's: loaded, judging and set like those that are."""

import asyncio

import pytest

from paddock.domain.agent_event import AgentEventKind
from paddock.domain.errors import InvalidRequest
from paddock.domain.guardian import Finding, GuardianConfig
from paddock.domain.message import Mode
from paddock.domain.task import TaskState
from paddock.services.task_config import TasksConfig
from paddock.settings import AgentsConfig, Settings
from paddock.wiring.guardian import own_rules
from tests.control_plane import disposable
from tests.tasks.conftest import HEALTH, OWN, Working, at_work, operator

S = TaskState
pytestmark = pytest.mark.timeout(180)


class Swearing:
    """It says what nobody wants to read."""

    name = "swearing"
    act = "ask"

    def judge(self, seen, event, facts):
        if event is None or event.kind is not AgentEventKind.MESSAGE:
            return None
        if "darn" not in event.data["text"]:
            return None
        return Finding(self.name, "darn", "it swears", "Mind your language.", "Shall it go on?")


class Wrong:
    """It returns what is no finding, and what cannot be kept."""

    name = "wrong"

    def judge(self, seen, event, facts):
        if event is None or event.kind is not AgentEventKind.MESSAGE:
            return None
        return Finding("loop", "x", "y", "", before={"it": self}) if "b" in str(event.data) else "x"


class NoName:
    def judge(self, seen, event, facts):
        return None


class Taken(Swearing):
    name = "loop"


class Unsayable(Swearing):
    name = "swear words"


class Overdone(Swearing):
    act = "shout"


@pytest.fixture(scope="module")
async def working(database):
    own = tuple(f"{__name__}:{each.__name__}" for each in (Swearing, Wrong))
    tasks = TasksConfig(health=HEALTH, guardian=GuardianConfig(own=own))
    settings = Settings(agents=AgentsConfig(own=(OWN,)), tasks=tasks)
    async with disposable(database=database, settings=settings) as plane, at_work(plane):
        yield Working(plane, await operator(plane))


@pytest.mark.proves("M6")
async def test_a_rule_of_ones_own_asks_where_it_says_so(working):
    task = await working.begin({"say": "darn"}, {"sleep": 100})
    task = await working.until(task, lambda now: now.state is S.WAITING)
    assert (task.detail, task.waits_rule) == ("it swears", "swearing")
    asked = await working.plane.services.approvals.get(working.who, task.waits_for)
    assert asked.title == "Shall it go on?"
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task)).state is S.CANCELLED


@pytest.mark.proves("M7")
async def test_a_task_says_what_a_rule_of_ones_own_does(working):
    steps = [{"say": "darn"}, {"await": 1}, {"say": "sorry"}]
    task = await working.done(*steps, guardian={"swearing": "nudge"})
    assert task.state is S.COMPLETED, task.detail
    (sent,) = await working.tasks.messages(working.who, task.id)
    assert sent.text == "Mind your language."
    with pytest.raises(InvalidRequest, match="the guardian has no other = 'ask'") as refused:
        await working.begin({"say": "x"}, guardian={"other": "ask"})
    assert "swearing" in refused.value.remediation


async def test_a_rule_that_returns_what_is_no_finding_is_told_of_and_stops_nothing(working):
    for words, why in (("a", "it returned str"), ("b", "not JSON serializable")):
        task = await working.begin({"say": words}, {"await": 1}, {"say": "done"})
        async with asyncio.timeout(60):
            while not (told := await working.events(task, "guardian.failed")):
                await asyncio.sleep(0.05)
        assert "the rule wrong failed: TypeError" in told[0].data["why"]
        assert why in told[0].data["why"]
        await working.tasks.send(working.who, task.id, "go on", Mode.NOW)
        assert (await working.ended(task)).state is S.COMPLETED
    quiet = await working.done({"say": "a"}, guardian={"wrong": "off"})
    assert await working.events(quiet, "guardian.") == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no.such.module:Rule", "No module named 'no'"),
        (f"{__name__}:Absent", "has no attribute 'Absent'"),
        (__name__, "has no attribute ''"),
        (f"{__name__}:NoName", "has no attribute 'name'"),
        (f"{__name__}:Taken", "there is a rule loop already"),
        (f"{__name__}:Unsayable", "its name is 'swear words'"),
        (f"{__name__}:Overdone", "its act is 'shout'"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_reason(name, why):
    with pytest.raises(InvalidRequest, match=r"tasks\.guardian\.own names") as refused:
        own_rules([name])
    assert why in refused.value.message
