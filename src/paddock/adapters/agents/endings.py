"""The end of an agent that did not say that it was done."""

from paddock.domain.agent_event import AgentEvent, AgentEventKind

_TAIL = 2000


def died(program: str, exit_code: int | None, said: str) -> AgentEvent:
    how = "was killed" if exit_code is None else f"ended with {exit_code}"
    tail = said.strip()[-_TAIL:]
    why = f"{program} {how} before it was done" + (f": {tail}" if tail else "")
    return ended_badly(why, exit_code)


def ended_badly(why: str, exit_code: int | None) -> AgentEvent:
    """How it ended is told with it: who ends with 0 and did nothing has not even failed."""
    code = {} if exit_code is None else {"exit_code": exit_code}
    return AgentEvent(AgentEventKind.ERROR, {"message": why, "final": True, **code})
