"""Answers that are kept for requests that come again."""

from dataclasses import dataclass, field

ANSWER_PREFIX = "ans"
_OWN = "\x01"
"""No request's key begins with it: those are printable."""


def own_key(text: str) -> str:
    """A key for what Paddock itself does once: what clients choose is never the same."""
    return _OWN + text


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What a request with a key was answered, sealed."""

    team_id: str
    key: str
    fingerprint: str
    object_id: str
    """What the request made."""
    key_id: str = ""
    """The key that seals it; not the request's."""
    sealed: str = field(default="", repr=False)

    @property
    def associated(self) -> bytes:
        """What it is bound to: moved to another request's place, it does not open.

        The request's key comes last, because it may have any character.
        """
        return f"answer|{self.team_id}|{self.fingerprint}|{self.object_id}|{self.key}".encode()
