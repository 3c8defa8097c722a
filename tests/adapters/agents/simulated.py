"""Agents without a model: only how they take messages, one small step at a time.

They are as unhelpful as the real ones are at their worst: what is broken off before it has begun is
not broken off, and what a turn has taken and not used is lost with it.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class Simulated:
    """What it has been told and has not read, and what it has said."""

    told: deque[Json] = field(default_factory=deque)
    said: deque[bytes] = field(default_factory=deque)
    seen: list[str] = field(default_factory=list)
    """Texts that its model has got, in order."""

    def say(self, **members: Any) -> None:
        self.said.append(json.dumps(members).encode())

    @property
    def is_busy(self) -> bool:
        raise NotImplementedError

    def read(self) -> None:
        """One line of its input."""
        raise NotImplementedError

    def work(self, *, is_done: bool) -> bool:
        """One step of a turn, its last if so; False if there is nothing to do."""
        raise NotImplementedError


@dataclass
class SimulatedClaude(Simulated):
    works: bool = False
    queue: list[Json] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        return self.works or bool(self.queue)

    def read(self) -> None:
        line = self.told.popleft()
        if line["type"] == "control_request":
            self.say(type="control_response", response={"subtype": "success"})
            if self.works:
                self._end(is_error=True, subtype="error", terminal_reason="aborted_tools")
            return
        self.queue.append(line)
        self._stage(line, "queued")

    def work(self, *, is_done: bool) -> bool:
        waiting = [line for line in self.queue if line.get("priority") != "later"]
        if not self.works:
            if not self.queue:
                return False
            self._take((waiting or self.queue)[0])
            self.works = True
            self.say(type="system", subtype="init", session_id="s")
        elif waiting and not is_done:
            self._take(waiting[0])
        elif is_done:
            self._end(is_error=False, subtype="success", terminal_reason="completed")
        return True

    def _take(self, line: Json) -> None:
        self.queue.remove(line)
        self.seen.append(line["message"]["content"])
        self._stage(line, "started")

    def _stage(self, line: Json, state: str) -> None:
        if "uuid" in line:
            self.say(type="command_lifecycle", command_uuid=line["uuid"], state=state)

    def _end(self, **how: Any) -> None:
        self.works = False
        self.say(type="result", result="", **how)


@dataclass
class SimulatedCodex(Simulated):
    turns: int = 0
    turn: str = ""
    wanted: list[Json] = field(default_factory=list)
    steers: list[Json] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        return bool(self.turn or self.wanted)

    def read(self) -> None:
        line = self.told.popleft()
        method, params = line["method"], line.get("params", {})
        match method:
            case "thread/start":
                self.say(id=line["id"], result={"thread": {"id": "t"}})
            case "turn/start" if not (self.turn or self.wanted):
                self.wanted.append(params)
                self.say(id=line["id"], result={"turn": {}})
            case "turn/steer" if self.turn == params["expectedTurnId"]:
                self.steers.append(params)
                self.say(id=line["id"], result={})
            case "turn/interrupt" if self.turn == params["turnId"]:
                self.say(id=line["id"], result={})
                self._end("interrupted")
            case "turn/start" | "turn/steer" | "turn/interrupt":
                self.say(id=line["id"], error={"code": -32600, "message": "no such turn"})
            case _ if "id" in line:
                self.say(id=line["id"], result={})

    def work(self, *, is_done: bool) -> bool:
        if not self.turn:
            if not self.wanted:
                return False
            self.turns += 1
            self.turn = f"u{self.turns}"
            self.say(method="turn/started", params={"threadId": "t", "turn": {"id": self.turn}})
            self._take(self.wanted.pop())
        elif self.steers and not is_done:
            self._take(self.steers.pop(0))
        elif is_done:
            self._end("completed")
        return True

    def _take(self, params: Json) -> None:
        self.seen.append(params["input"][0]["text"])
        item = {"type": "userMessage", "clientId": params["clientUserMessageId"]}
        self.say(method="item/started", params={"threadId": "t", "item": item})

    def _end(self, status: str) -> None:
        turn = {"id": self.turn, "status": status, "items": []}
        self.turn, self.steers = "", []
        self.say(method="turn/completed", params={"threadId": "t", "turn": turn})
