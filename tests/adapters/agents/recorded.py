"""Lines that real agents wrote, and what an adapter makes of them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddock.domain.agent import Brief, Say, Talk
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.ports.agent import Agent

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> list[bytes]:
    return (SAMPLES / f"{name}.jsonl").read_bytes().splitlines()


def brief(prompt: str = "do the task", **more: Any) -> Brief:
    given = {"key": "run-1", "cwd": "/workspace", "home": "/home/user", "program": "/agent"}
    return Brief(prompt=prompt, **{**given, **more})


@dataclass
class Told:
    """All consequences of some steps."""

    talk: Talk
    events: list[AgentEvent] = field(default_factory=list)
    says: list[Say] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    session: str = ""

    def then(self, talk: Talk) -> "Told":
        """What is kept goes through JSON, as it does between two servers."""
        self.talk = replace(talk, state=json.loads(json.dumps(talk.state, allow_nan=False)))
        self.events += talk.events
        self.says += talk.says
        self.delivered += talk.delivered
        self.seen += talk.seen
        self.session = talk.session or self.session
        return self

    def hear(self, agent: Agent, lines: Iterable[bytes]) -> "Told":
        for line in lines:
            self.then(agent.hear(self.talk, line))
        return self

    def of(self, kind: AgentEventKind) -> list[dict[str, Any]]:
        return [dict(event.data) for event in self.events if event.kind is kind]

    @property
    def said(self) -> list[dict[str, Any]]:
        return [json.loads(say.data) for say in self.says]


def begun(agent: Agent, given: Brief | None = None) -> Told:
    told = Told(Talk())
    return told.then(agent.begin(given or brief()))


def played(agent: Agent, name: str) -> Told:
    return begun(agent).hear(agent, sample(name))
