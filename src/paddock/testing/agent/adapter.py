"""The scripted agent behind the port: it has everything that an agent can have."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.domain.agent import Brief, Launch, PlacedFile, Say, Talk, Traits
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Message, Mode
from paddock.testing.agent.steps import MARK

_PROGRAM = Path(__file__).with_name("program.py")
_KINDS = {
    "say": AgentEventKind.MESSAGE,
    "call": AgentEventKind.TOOL_CALL,
    "result": AgentEventKind.TOOL_RESULT,
    "edited": AgentEventKind.FILE_EDITED,
    "usage": AgentEventKind.USAGE,
}


class ScriptedAgent:
    """State: `open`, the messages that it has and has not put before itself yet."""

    @property
    def traits(self) -> Traits:
        return Traits(
            name="scripted",
            title="Scripted agent",
            modes=frozenset(Mode),
            resumes=True,
            reports_usage=True,
        )

    def check(self, brief: Brief) -> None:
        if brief.model:
            raise InvalidRequest("it has no model", remediation="leave `model` out")

    def launch(self, brief: Brief) -> Launch:
        path = f"{brief.home}/.scripted/agent.py"
        program = PlacedFile(path, _PROGRAM.read_bytes(), 0o644)
        return Launch(("python3", path), {"HOME": brief.home}, (program,))

    def begin(self, brief: Brief) -> Talk:
        words, _, steps = brief.prompt.partition(MARK)
        # Who asked may have had something added to what was asked.
        wanted, end = json.JSONDecoder().raw_decode(steps) if steps else (None, 0)
        words = f"{words}{steps[end:]}".strip()
        session = brief.session or brief.key.partition(".")[0]
        wish = {"session": session, "steps": wanted, "words": words}
        wish["goes_on"] = bool(brief.session)
        return Talk(says=(Say(_line(wish)),), session=session)

    def hear(self, talk: Talk, line: bytes) -> Talk:
        try:
            told = json.loads(line)
            kind = told.pop("type")
        except (ValueError, AttributeError, KeyError, TypeError):
            return talk.further()
        return self._heard(talk, kind, told)

    def _heard(self, talk: Talk, kind: str, told: Mapping[str, Any]) -> Talk:
        waiting = [str(each) for each in talk.state.get("open", ())]
        if kind in _KINDS:
            return talk.further(events=(AgentEvent(_KINDS[kind], told),))
        if kind == "started":
            session = str(told["session"])
            event = AgentEvent(AgentEventKind.STARTED, {"session": session})
            return talk.further(events=(event,), session=session)
        if kind == "has":
            return talk.further(delivered=(str(told["message"]),))
        if kind == "seen":
            seen = str(told["message"])
            rest = [each for each in waiting if each != seen]
            return Talk(state={**talk.state, "open": rest}, seen=(seen,))
        if kind == "failed":
            event = AgentEvent(AgentEventKind.ERROR, {"message": told["text"], "final": True})
            return Talk(state={**talk.state, "failed": True}, events=(event,), is_over=True)
        event = AgentEvent(AgentEventKind.COMPLETED, told)
        return talk.further(events=(event,), is_over=not waiting)

    def tell(self, talk: Talk, message: Message) -> Talk:
        said = {"message": message.id, "mode": message.mode, "text": message.text}
        waiting = [*talk.state.get("open", ()), message.id]
        return Talk(
            state={**talk.state, "open": waiting}, says=(Say(_line(said), message=message.id),)
        )

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        """Never asked for: what it is told, it has at once."""
        return talk.further()

    def taken(self, talk: Talk, message_id: str) -> Talk:
        return talk.further()

    def stop(self, talk: Talk) -> Talk:
        return talk.further(says=(Say(_line({"stop": True})),))

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        if exit_code == 0 or talk.state.get("failed"):
            return talk.further()
        why = f"it ended with {exit_code}: {said.strip()[-300:]}"
        return talk.further(
            events=(AgentEvent(AgentEventKind.ERROR, {"message": why, "final": True}),)
        )


class ScriptedReviewer(ScriptedAgent):
    """The same, for reviews: what is under review is in its prompt, so its steps are elsewhere.

    They are in the variable SCRIPTED_REVIEW of the task: a list of them for each review.
    """

    @property
    def traits(self) -> Traits:
        return replace(super().traits, name="scripted_reviewer", title="Scripted reviewer")

    def begin(self, brief: Brief) -> Talk:
        session = brief.session or brief.key
        reviews = json.loads(brief.env.get("SCRIPTED_REVIEW", "[]"))
        wish = {"session": session, "steps": None, "words": brief.prompt, "reviews": reviews}
        return Talk(says=(Say(_line(wish)),), session=session)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
