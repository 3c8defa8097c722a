"""Pieces of what an agent says, put together into one event."""

from collections.abc import Mapping
from typing import Any

from paddock.domain.agent_event import LONGEST_SAID, AgentEvent, AgentEventKind

LONGEST_PIECE = LONGEST_SAID
"""In characters. What is longer becomes several events, so that little has to be kept."""

State = Mapping[str, Any]
Joined = tuple[dict[str, Any], tuple[AgentEvent, ...]]


def joined(state: State, kind: AgentEventKind, piece: str, name: str = "") -> Joined:
    """After one more piece. Pieces of another kind or name end what was being said."""
    pending = state.get("saying", {})
    events: tuple[AgentEvent, ...] = ()
    if pending and (pending["kind"], pending["name"]) != (kind.value, name):
        kept, events = finished(state)
        state, pending = kept, {}
    said = pending.get("text", "") + piece
    whole, rest = _pieces(said)
    events += tuple(AgentEvent(kind, {"text": text}) for text in whole)
    now = {"kind": kind.value, "name": name, "text": rest}
    last = whole[-1] if whole and kind is AgentEventKind.MESSAGE else state.get("last", "")
    return {**state, "saying": now, "last": last}, events


def finished(state: State) -> Joined:
    """Nothing more follows. `last` is the last message, for whoever asks for last words."""
    pending = state.get("saying", {})
    rest = {key: value for key, value in state.items() if key != "saying"}
    said = pending.get("text", "")
    if not said.strip():
        return rest, ()
    kind = AgentEventKind(pending["kind"])
    if kind is AgentEventKind.MESSAGE:
        rest["last"] = said
    return rest, (AgentEvent(kind, {"text": said}),)


def _pieces(said: str) -> tuple[list[str], str]:
    cuts = range(0, len(said) - LONGEST_PIECE, LONGEST_PIECE)
    whole = [said[start : start + LONGEST_PIECE] for start in cuts]
    return whole, said[len(whole) * LONGEST_PIECE :]
