"""Messages on their way to an agent, and their receipts."""

from collections.abc import Callable, Collection, Iterable, Sequence

from paddock.domain import message as rules
from paddock.domain.message import TRANSITIONS, Message, MessageState
from paddock.ports.store import ANY_TEAM, Transaction
from paddock.services.task_events import message_event

_QUEUED = frozenset({MessageState.QUEUED})
_DELIVERED = frozenset({MessageState.DELIVERED})


def waiting(tx: Transaction, task_id: str, now: float) -> Sequence[Message]:
    """Those that no program has yet, in the order in which they were sent. What is too late is not
    among them, whether that is on record yet or not."""
    return [each for each in tx.messages.of(task_id, _QUEUED) if not each.is_due(now)]


def may_be_told(tx: Transaction, message_ids: Iterable[str], now: float) -> bool:
    """None of them has become too late since they were read."""
    known = [each for each in (tx.messages.get(ANY_TEAM, name) for name in message_ids) if each]
    return not any(each.is_due(now) or each.state is MessageState.EXPIRED for each in known)


def put_back(tx: Transaction, task_id: str, but: Collection[str], now: float) -> None:
    """The agent's program died with messages that nobody has read: the next one gets them."""
    lost = [each.id for each in tx.messages.of(task_id, _DELIVERED) if each.id not in but]
    _note(tx, lost, MessageState.QUEUED, rules.put_back, now=now)


def note_delivered(tx: Transaction, task_id: str, message_ids: Iterable[str], now: float) -> None:
    ids = _own(tx, task_id, message_ids)
    _note(tx, ids, MessageState.DELIVERED, lambda each: rules.delivered(each, now), now=now)


def note_seen(tx: Transaction, task_id: str, message_ids: Iterable[str], now: float) -> None:
    """What an agent has put before its model, its program has had."""
    ids = _own(tx, task_id, message_ids)
    note_delivered(tx, task_id, ids, now)
    _note(tx, ids, MessageState.SEEN, lambda each: rules.seen(each, now), now=now)


def note_expired(tx: Transaction, message_ids: Iterable[str], now: float) -> None:
    """Those of them that are too late by now, and that no program has."""
    found = (tx.messages.get(ANY_TEAM, each) for each in message_ids)
    late = [each.id for each in found if each is not None and each.is_due(now)]
    _note(tx, late, MessageState.EXPIRED, rules.expired, now=now)


def give_up(tx: Transaction, task_id: str, why: str, now: float) -> None:
    """The task is over: who wrote to its agent learns that nobody has read it."""
    found = [each.id for each in tx.messages.of(task_id, _QUEUED)]
    note_expired(tx, found, now)
    lost = MessageState.UNDELIVERED
    _note(tx, found, lost, lambda each: rules.given_up(each, why), now=now)


def _own(tx: Transaction, task_id: str, message_ids: Iterable[str]) -> list[str]:
    """An agent may name any message: those of other tasks are none of its business."""
    found = {each: tx.messages.get(ANY_TEAM, each) for each in message_ids}
    return [name for name, each in found.items() if each is not None and each.task_id == task_id]


def _note(
    tx: Transaction,
    message_ids: Iterable[str],
    target: MessageState,
    step: Callable[[Message], Message],
    *,
    now: float,
) -> None:
    for message_id in message_ids:
        found = tx.messages.get(ANY_TEAM, message_id)
        if found is None or target not in TRANSITIONS[found.state]:
            continue  # it is there already, or further
        changed = step(found)
        tx.messages.replace(changed)
        tx.events.append([message_event(found.task_id, changed, now)])
