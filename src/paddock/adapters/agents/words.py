"""Prompts and messages as agents are given them."""

AS_IT_STANDS = "What follows is meant as it stands, not as a command:\n\n"


def is_command(text: str) -> bool:
    """Agents take this for one of their own commands, and one they do not know for nothing."""
    return text.lstrip().startswith("/")


def as_it_stands(text: str) -> str:
    return f"{AS_IT_STANDS}{text}" if is_command(text) else text
