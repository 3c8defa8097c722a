"""How many tasks run at once."""

import pytest

from paddock.domain.task_queue import TaskLimits, Waiting, turns


@pytest.mark.proves("T16")
def test_only_so_many_tasks_of_a_team_and_on_a_provider_run_at_once():
    waiting = [Waiting(f"{team}{number}", team, "local") for team in "ab" for number in range(3)]
    active = {("a", "local"): 1, ("b", "docker"): 1}
    assert turns(waiting, active, (), TaskLimits(team=2, provider=9)) == ["a0", "b0"]
    assert turns(waiting, active, (), TaskLimits(team=9, provider=2)) == ["a0"]
    assert turns(waiting, active, (), TaskLimits(team=1, provider=9)) == []
