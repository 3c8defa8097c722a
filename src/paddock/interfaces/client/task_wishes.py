"""What is asked of an agent, as the API takes it."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.interfaces.client.server import without_nothing
from paddock.interfaces.client.shell import argument_vector

Content = str | bytes | Path
Checks = Mapping[str, str | Sequence[str] | Mapping[str, Any]]
_REFUSED_EMPTY = ("prompt", "sandbox", "fork", "snapshot")
"""An empty one is sent, so that the server refuses it: a name that is missing is no default."""
_BUDGET = {"budget_tokens": "tokens", "budget_usd": "cost_usd", "budget_turns": "turns"}


def task_wish(
    *,
    files: Mapping[str, Content] | None = None,
    checks: Checks | None = None,
    rounds: int | Mapping[str, Any] | None = None,
    timeout: float | None = None,
    network: str | Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The body of a creation; what was not said is left to the server."""
    budget = {target: more.pop(name, None) for name, target in _BUDGET.items()}
    said = {
        name: _plain(value)
        for name, value in more.items()
        if value not in (None, "", ()) or (name in _REFUSED_EMPTY and value == "")
    }
    return without_nothing(
        files=[_file(path, content) for path, content in (files or {}).items()] or None,
        checks=[_check(name, check) for name, check in (checks or {}).items()] or None,
        rounds={"most": rounds} if isinstance(rounds, int) else rounds,
        timeout_s=timeout,
        egress=({"mode": network} if isinstance(network, str) else network) or None,
        budget=without_nothing(**budget) or None,
        **said,
    )


def _check(name: str, check: str | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """A command, or everything about it: `cmd`, `description`, `timeout_s` and `when`."""
    if not isinstance(check, Mapping):
        return {"name": name, "cmd": argument_vector(check)}
    return {"name": name, **check, "cmd": argument_vector(check.get("cmd", ()))}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _file(path: str, content: Content) -> dict[str, Any]:
    mode = {}
    if isinstance(content, Path):
        mode = {"mode": content.stat().st_mode & 0o777}
        content = content.read_bytes()
    data = content.encode() if isinstance(content, str) else content
    return {"path": path, "base64": base64.b64encode(data).decode(), **mode}
