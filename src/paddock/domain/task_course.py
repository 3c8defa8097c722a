"""What a task does next when a run of its agent has ended."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from paddock.domain.agent_event import Ending, judged
from paddock.domain.conversation import Conversation, Stage, verdict
from paddock.domain.reason import Reason
from paddock.domain.task_faults import fault_of_agent

GO_ON = "You were interrupted. Look at what you have done so far, and go on where you stopped."
_TAIL = 2000
_TRIES = 3
"""Of one that is late: it may have ended in time while nobody looked."""
_BY_SIGNAL = range(129, 193)
"""How a shell says that a signal ended something."""


class Step(StrEnum):
    """What follows."""

    BEGIN = "begin"
    """Another run, because there is more to do."""
    RESTART = "restart"
    """Another run, because this one died."""
    FORGET = "forget"
    """Another run without its session, which was lost with its sandbox."""
    COMPLETE = "complete"
    CANCEL = "cancel"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Next:
    """What follows, and why."""

    step: Step
    prompt: str = ""
    reason: Reason | None = None
    why: str = ""
    message: str = ""
    """The agent's last words."""
    stage: Stage | None = None
    """Whose turn it is then; None is who had it."""


def after_run(
    conversation: Conversation, *, is_cancelled: bool, resumes: bool, mail: Sequence[str]
) -> Next:
    """Mail that did not reach the agent begins a run of its own, where it can be resumed."""
    ending = _ending(conversation)
    can_go_on = resumes and bool(conversation.session)
    step = Next(Step.FAIL, reason=_reason(conversation, ending.why), why=ending.why)
    if is_cancelled:
        step = Next(Step.CANCEL, reason=Reason.CANCELLED)
    elif (stopped := conversation.why_stopped) is not None:
        why = conversation.stop_detail or f"the agent was stopped: {stopped}"
        step = Next(Step.FAIL, reason=stopped, why=why)
    elif conversation.then:
        step = Next(Step.BEGIN, prompt=conversation.then)
    elif _has_forgotten(conversation, ending):
        step = Next(Step.FORGET)
    elif mail and can_go_on and not _died(conversation):
        step = Next(Step.BEGIN, prompt="\n\n".join(mail))
    elif ending.is_good:
        step = Next(Step.COMPLETE)
    elif _died(conversation):
        reason = Reason.PROVIDER_LOST if conversation.is_lost else Reason.CRASHED
        why = conversation.stop_detail or ending.why
        # One that died before it did anything has not read what it was begun with.
        has_read = can_go_on and conversation.judged.did_something
        step = Next(Step.RESTART, GO_ON if has_read else conversation.prompt, reason, why)
    return replace(step, message=ending.message)


def regardless(said: str, *, is_cancelled: bool, is_late: bool, tries: int) -> Next | None:
    """The end of a task for which somebody is away, `said` in words; None if it waits for them."""
    if is_cancelled:
        why = f"what is left of it could not be seen to: {said}"
        return Next(Step.CANCEL, reason=Reason.CANCELLED, why=why)
    if is_late and tries >= _TRIES:
        return Next(
            Step.FAIL, reason=Reason.DEADLINE, why=f"its time is up; it stood still: {said}"
        )
    return None


def _ending(conversation: Conversation) -> Ending:
    """Of one that did nothing, what it complained of is all there is to go by."""
    ending = judged(verdict(conversation), conversation.exit_code)
    complaint = conversation.errors.strip()[-_TAIL:]
    if not _did_nothing(conversation) or not complaint:
        return ending
    return replace(ending, why=f"{ending.why}; on standard error it wrote: {complaint}")


def _did_nothing(conversation: Conversation) -> bool:
    return not conversation.judged.did_something and not conversation.judged.error


def _reason(conversation: Conversation, why: str) -> Reason:
    """Of an agent that ended by itself, and badly."""
    if fault_of_agent(why) is not None:
        return Reason.SURROUNDINGS
    return Reason.NO_OUTPUT if _did_nothing(conversation) else Reason.AGENT_ERROR


def _has_forgotten(conversation: Conversation, ending: Ending) -> bool:
    """It was to go on in another sandbox, and could not even begin: what that was made of may not
    have its session."""
    if conversation.came_back is None or _died(conversation):
        return False
    is_ours = fault_of_agent(ending.why) is None
    return is_ours and not ending.is_good and not conversation.judged.did_something


def _died(conversation: Conversation) -> bool:
    """It was ended by something that is not its own doing, and nobody here did it."""
    if conversation.is_lost or conversation.must_restart or conversation.exit_code is None:
        return True
    if conversation.judged.has_completed or conversation.is_closing or conversation.must_stop:
        return False
    return conversation.exit_code < 0 or conversation.exit_code in _BY_SIGNAL
