"""Tasks for people: their results, and tables of them."""

import click

from paddock.interfaces.cli.output import print_table, printable
from paddock.interfaces.cli.remote.task_health import health_lines
from paddock.interfaces.client.task_results import TaskInfo, TaskSummary

_WIDEST = 120
_MOST_FILES = 50
STATES = {"completed": "green", "failed": "red", "cancelled": "yellow"}
MARKS = {
    "passed": click.style("✓", fg="green"),
    "failed": click.style("✗", fg="red"),
    "unknown": click.style("?", fg="yellow"),
}


def in_lines(text: str) -> str:
    """The same lines, safe for a terminal."""
    return "\n".join(printable(line) for line in text.splitlines())


def shortened(value: object, most: int = _WIDEST) -> str:
    """The text in one line of at most so many characters."""
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def say_result(task: TaskInfo) -> None:
    """How it ended, and what it made."""
    state = click.style(task.state, fg=STATES.get(task.state))
    why = (
        f": {in_lines(' – '.join(filter(None, (task.reason, task.detail))))}" if task.reason else ""
    )
    click.echo(f"{task.id}  {state}{why}")
    if (result := task.result) is None:
        return
    for file in result.files[:_MOST_FILES]:
        click.echo(f"  {file.kind:<8} +{file.added:<5} -{file.removed:<5} {printable(file.path)}")
    if (more := len(result.files) - _MOST_FILES) > 0:
        click.echo(f"  and {more} more")
    for path in result.reverted[:_MOST_FILES]:
        click.echo(f"  put back                {printable(path)}")
    if result.unseen:
        click.echo(f"  what was changed is not known: {in_lines(result.unseen)}")
    for warning in result.warnings:
        click.echo(click.style(f"  warning: {in_lines(warning)}", fg="yellow"))
    for review in result.reviews:
        click.echo(f"  review {review.number}: {review.verdict}")
    for check in result.checks:
        how = check.why if check.state == "unknown" else f"exit {check.exit_code}"
        click.echo(f"  {MARKS[check.state]} {check.name}  {how}  {check.seconds:.1f} s")
        if not check.ok:
            click.echo(
                "\n".join(f"    {line}" for line in in_lines(check.output).splitlines()[-10:])
            )
    for line in health_lines(result.health) if result.health else ():
        click.echo(line)
    for said in result.verdicts:
        word = "passes" if said.passed else "fails"
        click.echo(f"  the agent says: {printable(said.name)} {word}  {shortened(said.detail)}")
    click.echo(f"  {spent(task)}  {result.seconds:.0f} s")


def spent(task: TaskInfo | TaskSummary) -> str:
    used = task.spent
    turns = "1 turn" if used.turns == 1 else f"{used.turns} turns"
    thought = f" ({used.reasoning_tokens} of them thought)" if used.reasoning_tokens else ""
    return f"{used.tokens} tokens{thought}  ${used.cost_usd:.4f}  {turns}"


def print_tasks(tasks: list[TaskSummary], *, compared: bool = False) -> None:
    """As a table; of attempts, with what tells them apart."""
    if compared:
        told = ("ID", "STATE", "AGENT", "MODEL", "CHECKS", "FILES", "LINES", "COST", "SAID")
        print_table(told, map(_compared, tasks))
    else:
        print_table(("ID", "STATE", "AGENT", "NAME", "COST", "PROMPT"), map(_listed, tasks))


def _listed(task: TaskSummary) -> tuple[str, ...]:
    cost = f"${task.spent.cost_usd:.4f}"
    return (task.id, task.state, task.agent, task.name, cost, shortened(task.prompt)[:60])


def _compared(task: TaskSummary) -> tuple[str, ...]:
    state = f"{task.state}{', adopted' if task.adopted else ''}"
    head = (task.id, state, task.agent, task.model or "–")
    cost = f"${task.spent.cost_usd:.4f}"
    if (result := task.result) is None:
        return (*head, "–", "–", "–", cost, "")
    good = sum(each.ok for each in result.checks)
    lines = f"+{result.added} -{result.removed}"
    checks = f"{good}/{len(result.checks)}" if result.checks else "–"
    return (*head, checks, str(result.files), lines, cost, shortened(result.message)[:60])
