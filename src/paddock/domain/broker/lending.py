"""Which of the values that were lent to a sandbox are kept."""

from collections.abc import Mapping

MOST = 256
MOST_CHARS = 1 << 20


def kept_values(known: Mapping[str, str], more: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Those of before and these, the newest last; and how many are too many, the oldest."""
    found = {value: shown for value, shown in known.items() if value not in more} | dict(more)
    kept: dict[str, str] = {}
    chars = 0
    for value, shown in reversed(found.items()):
        chars += len(value)
        if len(kept) == MOST or (kept and chars > MOST_CHARS):
            break
        kept[value] = shown
    return dict(reversed(kept.items())), len(found) - len(kept)
