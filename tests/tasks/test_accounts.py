"""Who pays for models: what Paddock itself has written down, and no label."""

from paddock.domain.task_wish import Workspace
from paddock.ports.egress import ModelUse
from paddock.services.amendments import Amendment
from paddock.services.spending import account_of, note_use
from paddock.services.wishes import Wish

THOUGHT = {"reasoning": 1}


def use(sandbox, account):
    counted = {"requests": 1, "input": 7, "output": 5, "cache_read": 0, "cache_write": 0, **THOUGHT}
    return ModelUse(
        sandbox=sandbox.id,
        ref=sandbox.ref,
        account=account,
        route="own",
        model="m",
        guessed=False,
        cost=0.5,
        first_at=1.0,
        last_at=2.0,
        **counted,
    )


async def test_a_label_charges_nobody_elses_task(working):
    plane, who = working.plane, working.who
    sandboxes = plane.services.sandboxes
    task = await working.done({"say": "done"})
    own = await sandboxes.get(who, task.sandbox_id)
    assert account_of(own) == f"{task.team_id}/task {task.id}"
    # Whose it is stays what it was, whatever somebody writes on it.
    relabelled = await sandboxes.amend(who, own.id, Amendment(labels={"task": "tsk_other"}))
    assert account_of(relabelled) == account_of(own)
    wish = Wish(template=working.template, labels={"task": task.id})
    other = await sandboxes.create(who, wish)
    assert account_of(other) == f"{task.team_id}/sandbox {other.id}"
    await plane.services.store.write(lambda tx: note_use(tx, other, use(other, account_of(other))))
    assert (await working.get(task)).metered.tokens == 0
    await plane.services.store.write(lambda tx: note_use(tx, own, use(own, account_of(own))))
    charged = (await working.get(task)).metered
    assert (charged.tokens, charged.reasoning_tokens, charged.cost_usd) == (12, 1, 0.5)
    # A task that takes it up pays from then on.
    more = await working.done({"say": "more"}, workspace=Workspace(sandbox=other.name))
    assert account_of(await sandboxes.get(who, other.id)).endswith(f"task {more.id}")
