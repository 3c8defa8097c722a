"""What the gateway says to people, in their terminal."""


def said(text: str, *, terminal: bool = False) -> bytes:
    """A line, or some; a terminal in raw mode wants to be told to go back to the left."""
    lines = "".join(f"paddock: {line.strip()}\n" for line in text.splitlines() if line.strip())
    return (lines.replace("\n", "\r\n") if terminal else lines).encode("utf-8", "replace")
