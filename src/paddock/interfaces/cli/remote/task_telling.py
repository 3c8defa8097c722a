"""What a task does, as lines for people: one for each thing that is worth one."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from paddock.interfaces.cli.output import print_table, printable
from paddock.interfaces.cli.remote.task_health import health_line, health_lines
from paddock.interfaces.client.results import Event
from paddock.interfaces.client.task_results import TaskInfo, TaskSummary

Data = Mapping[str, Any]
_WIDEST = 120
_MOST_FILES = 50
_STATES = {"completed": "green", "failed": "red", "cancelled": "yellow"}
_MARKS = {
    "passed": click.style("✓", fg="green"),
    "failed": click.style("✗", fg="red"),
    "unknown": click.style("?", fg="yellow"),
}
_QUIET = ("task.phase", "agent.usage", "agent.other", "task.completing", "agent.completed")


def line_of(event: Event) -> str:
    """Empty for what people need not see."""
    if event.kind in _QUIET:
        return ""
    tell = _LINES.get(event.kind)
    return tell(event.data) if tell else _state(event.kind, event.data)


def _thinking(data: Data) -> str:
    return click.style(f"  {_short(data.get('text', ''))}", dim=True)


def _message(data: Data) -> str:
    return in_lines(str(data.get("text", "")))


def _call(data: Data) -> str:
    return f"→ {_short(data.get('name', 'tool'))} {_short(_input(data.get('input')))}".rstrip()


def _result(data: Data) -> str:
    """Only of one that failed."""
    failed = data.get("ok") is False
    return click.style(f"  ✗ {_short(data.get('output', ''))}", fg="red") if failed else ""


def _edited(data: Data) -> str:
    return f"± {printable(str(data.get('path', '')))}{_counts(str(data.get('diff') or ''))}"


def _round(data: Data) -> str:
    """Only where there may be more of them."""
    if data.get("of", 1) == 1:
        return ""
    said = [f"{_MARKS[state]} {name}" for state in _MARKS for name in data.get(state, ())]
    if data.get("error"):
        said.append(f"it broke off: {_short(data['error'])}")
    return f"· round {data.get('round')} of {data.get('of')}  {'  '.join(said)}"


def _planned(_data: Data) -> str:
    return click.style("· planned", dim=True)


def _reviewed(data: Data) -> str:
    """With what is to be done about it."""
    color = "green" if data.get("approved") else "yellow"
    head = click.style(f"· review {data.get('review')}: {data.get('verdict')}", fg=color)
    found = [
        f"    {_short(each.get('severity'))}: {_short(each.get('text'))}"
        for each in data.get("findings", ())
    ]
    return "\n".join((head, *found))


def _progress(data: Data) -> str:
    far = f"{data['percent']:g} % " if data.get("percent") is not None else ""
    return click.style(f"… {far}{_short(data.get('text', ''))}", dim=True)


def _verdict(data: Data) -> str:
    word = "passes" if data.get("passed") else "fails"
    return f"the agent says: {_short(data.get('name', ''))} {word}"


def _pulse(data: Data) -> str:
    if data.get("pulse") == "steady":
        return "· its sandbox tells of its agent again"
    silent_s = data.get("silent_s")
    line = f"· {data.get('pulse')}: its sandbox tells nothing of its agent for {silent_s} s"
    return click.style(line, fg="yellow")


def _restarted(data: Data) -> str:
    """From where, if its sandbox was lost with what was done in it."""
    line = f"· restarted: {_short(data.get('why') or data.get('reason', ''))}"
    if data.get("lost"):
        kept = data.get("snapshot")
        begins = f"goes on from snapshot {kept}" if kept else "begins again from its beginning"
        line = f"· sandbox {data['lost']} was lost; the task {begins}, in another"
    return click.style(printable(line), fg="yellow")


_LINES: Mapping[str, Callable[[Data], str]] = {
    "agent.thinking": _thinking,
    "agent.message": _message,
    "agent.tool_call": _call,
    "agent.tool_result": _result,
    "agent.file_edited": _edited,
    "task.pulse": _pulse,
    "task.restarted": _restarted,
    "task.round": _round,
    "task.health": health_line,
    "task.planned": _planned,
    "task.reviewed": _reviewed,
    "task.progress": _progress,
    "task.verdict": _verdict,
}


def _state(kind: str, data: Data) -> str:
    what = kind.partition(".")[2]
    said = [str(data[name]) for name in ("reason", "detail", "message", "state") if data.get(name)]
    said = said[:-1] if data.get("state") == what else said
    line = f"· {what}{': ' if said else ''}{_short(' – '.join(said))}"
    return click.style(line, fg=_STATES.get(what), dim=what not in _STATES and what != "error")


def in_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return printable(text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…")


def _input(value: object) -> str:
    """Of a call's input what says most: a single value as it is."""
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _counts(diff: str) -> str:
    lines = [line for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"  +{added} -{removed}" if diff else ""


def say_result(task: TaskInfo) -> None:
    """How it ended, and what it made."""
    state = click.style(task.state, fg=_STATES.get(task.state))
    why = f": {_short(' – '.join(filter(None, (task.reason, task.detail))))}" if task.reason else ""
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
        click.echo(f"  what was changed is not known: {_short(result.unseen)}")
    for check in result.checks:
        how = check.why if check.state == "unknown" else f"exit {check.exit_code}"
        click.echo(f"  {_MARKS[check.state]} {check.name}  {how}  {check.seconds:.1f} s")
        if not check.ok:
            click.echo(
                "\n".join(f"    {line}" for line in in_lines(check.output).splitlines()[-10:])
            )
    for line in health_lines(result.health) if result.health else ():
        click.echo(line)
    for said in result.verdicts:
        word = "passes" if said.passed else "fails"
        click.echo(f"  the agent says: {printable(said.name)} {word}  {_short(said.detail)}")
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
    return (task.id, task.state, task.agent, task.name, cost, _short(task.prompt)[:60])


def _compared(task: TaskSummary) -> tuple[str, ...]:
    state = f"{task.state}{', adopted' if task.adopted else ''}"
    head = (task.id, state, task.agent, task.model or "–")
    cost = f"${task.spent.cost_usd:.4f}"
    if (result := task.result) is None:
        return (*head, "–", "–", "–", cost, "")
    good = sum(each.ok for each in result.checks)
    lines = f"+{result.added} -{result.removed}"
    checks = f"{good}/{len(result.checks)}" if result.checks else "–"
    return (*head, checks, str(result.files), lines, cost, _short(result.message)[:60])
