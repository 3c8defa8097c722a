"""Components that a machine may lack, such as a runtime or an engine."""

from typing import Any

_PREFIX = "Skipped: needs "


def missing_component(report: Any) -> str:
    """Return the component that `need()` reported as missing; empty for any other report."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix(_PREFIX) if reason.startswith(_PREFIX) else ""
