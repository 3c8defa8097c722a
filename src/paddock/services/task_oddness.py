"""What is odd about a task, read from what is on record."""

from collections.abc import Mapping
from typing import Any

from paddock.domain.event import EventKind
from paddock.domain.guardian import Finding, history_of
from paddock.domain.guardian.policy import RuleName
from paddock.domain.quarantine import Signs, in_order, in_words
from paddock.domain.task import TaskRecord
from paddock.domain.vitals import HOUR
from paddock.ports.store import Transaction

_LOOKED_AT = 200
_FEWEST_CALLS = 5
_BUSY_WITHIN_S = 30.0


def signs_of(tx: Transaction, task: TaskRecord, now: float, window_s: float) -> Signs:
    since, last = max(now - window_s, task.forgiven_at), tx.events.last_seq() + 1
    around = tx.events.before(last, _LOOKED_AT, subject=task.sandbox_id) if task.sandbox_id else ()
    told = tx.events.before(last, _LOOKED_AT, subject=task.id)
    refused = sum(
        int(event.data.get("connections") or 1)
        for event in around
        if event.kind == EventKind.EGRESS_DENIED and event.at >= since
    )
    results = [event.data for event in told if event.kind == EventKind.AGENT_TOOL_RESULT]
    return Signs(
        refused=refused,
        dangers=_said(task, RuleName.DANGER, since),
        restarts=sum(at >= max(now - HOUR, task.forgiven_at) for at in task.restarts),
        repeats=_said(task, RuleName.LOOP, since),
        busy_s=_busy_s(task, now),
        errors=_failing(results),
    )


def _said(task: TaskRecord, rule: str, since: float) -> float:
    """How often the guardian has found it, said or not."""
    said = history_of(task.watch).said
    mine = [each for key, each in said.items() if key.startswith(f"{rule} ") and each.at >= since]
    return float(sum(each.times + each.unsaid for each in mine))


def _busy_s(task: TaskRecord, now: float) -> float:
    vitals = task.vitals
    if vitals is None or now - vitals.cpu_at > _BUSY_WITHIN_S:
        return 0.0
    return max(0.0, now - vitals.output_at)


def _failing(results: list[Mapping[str, Any]]) -> float:
    if len(results) < _FEWEST_CALLS:
        return 0.0
    return sum(not each.get("ok", True) for each in results) / len(results)


def odd(signs: Signs, score: float) -> Finding:
    """For the guardian, which does what is set for it. What counts the most is what it is about:
    who lets that pass has said nothing of what may come."""
    why = in_words(signs)
    return Finding(
        RuleName.ODD,
        occurrence=in_order(signs)[0],
        why=f"what it does is odd ({score:.2f}): {why}",
        text=f"What you do looks odd from outside: {why}. Say what you are trying to do, and do "
        "only what the task needs.",
        question=f"What this task does is odd: {why}. Shall it go on? Deny ends it; `paddock "
        "quarantine set` puts its sandbox aside first.",
        before={"oddness": score},
    )
