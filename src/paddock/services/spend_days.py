"""What models cost a team, day by day."""

from datetime import UTC, datetime

from paddock.ports.store import Transaction

_NAME = "model-spend."


def note_spent(tx: Transaction, team_id: str, at: float, cost_usd: float) -> None:
    """To the sum of the day, by UTC."""
    key = f"{_NAME}{team_id}.{_day(at)}"
    before = tx.values.get(key)
    tx.values.put(key, (float(before) if isinstance(before, int | float) else 0.0) + cost_usd)


def spent_lately(tx: Transaction, team_id: str, now: float) -> tuple[float, float]:
    """Today, and this month so far."""
    day = _day(now)
    month = tx.values.all(f"{_NAME}{team_id}.{day[:7]}")
    sums = {key.rpartition(".")[2]: float(str(value)) for key, value in month.items()}
    return sums.get(day, 0.0), sum(sums.values())


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
