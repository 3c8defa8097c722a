"""Presets that come with Paddock: lists of rules, as data."""

from importlib.resources import files


def shipped_presets() -> dict[str, tuple[str, ...]]:
    """By name; one rule a line, with comments after `#`."""
    return {
        entry.name.removesuffix(".rules"): _rules(entry.read_text())
        for entry in files(__package__).joinpath("rules").iterdir()
        if entry.name.endswith(".rules")
    }


def _rules(text: str) -> tuple[str, ...]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)
