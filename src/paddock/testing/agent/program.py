"""The program of the scripted agent: run by the Python of the sandbox, with nothing installed.

Which steps of a session are done is kept in the home, so a session that is resumed goes on with the
next one.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Agent:
    """One session of it."""

    def __init__(self, session: str, steps: list[dict[str, Any]] | None, told: str) -> None:
        self.session = session
        self.told = told
        self.ends = False
        self.buffer = b""
        self.waiting: list[dict[str, Any]] = []
        self.heard = 0
        self.words = "done"
        directory = Path.home() / ".scripted"
        directory.mkdir(exist_ok=True)
        self.memory = directory / f"{session}.json"
        if steps is not None:
            self.remember(steps=steps)
        self.steps: list[dict[str, Any]] = self.remembered().get("steps", [])

    def tell(self, kind: str, **data: Any) -> None:
        os.write(1, json.dumps({"type": kind, **data}).encode() + b"\n")

    def remembered(self) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(self.memory.read_text())
        except FileNotFoundError:
            return {"done": 0, "heard": []}
        return kept

    def remember(self, **changes: Any) -> None:
        kept = {**self.remembered(), **changes}
        new = self.memory.with_suffix(".new")
        new.write_text(json.dumps(kept))
        new.replace(self.memory)

    def listen(self, patience: float) -> list[dict[str, Any]] | None:
        """Lines that have come meanwhile; None when nobody will say anything more."""
        if not select.select([0], [], [], patience)[0]:
            return []
        data = os.read(0, 65536)
        if not data:
            return None
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def attend(self, patience: float = 0.0) -> bool:
        """Messages at a boundary between two steps. False when the input is closed."""
        lines = self.listen(patience)
        if lines is None:
            return False
        for line in lines:
            if line.get("stop"):
                self.tell("done", text="stopped", ok=False)
                sys.exit(0)
            self.tell("has", message=line["message"])
            if line["mode"] == "turn":
                self.waiting.append(line)
            else:
                self.see(line)
        return True

    def see(self, line: dict[str, Any]) -> None:
        self.heard += 1
        self.remember(heard=[*self.remembered()["heard"], line["text"]])
        self.tell("seen", message=line["message"], text=line["text"])

    def work(self) -> None:
        self.tell("started", session=self.session)
        while True:
            for number in range(self.remembered()["done"], len(self.steps)):
                self.attend()
                self.step(self.steps[number])
                self.remember(done=number + 1)
                if self.ends:
                    break
            self.attend()
            self.tell("done", text=self.words, ok=True)
            self.ends = False
            if not self.turn():
                return

    def turn(self) -> bool:
        """Whether there is another one: a message that waited for it, or that comes now."""
        while not self.waiting:
            before = self.heard
            if not self.attend(3600.0):
                return False
            if self.heard > before:
                return True
        for line in self.waiting:
            self.see(line)
        self.waiting = []
        return True

    def step(self, step: dict[str, Any]) -> None:
        (verb, value), *_ = step.items()
        getattr(self, "_do_" + verb)(value)

    def _do_say(self, text: str) -> None:
        self.words = text
        self.tell("say", text=text)

    def _do_echo(self, _: Any) -> None:
        self._do_say(self.told)

    def _do_end(self, text: str) -> None:
        self.words = text
        self.ends = True

    def _do_write(self, value: list[str], how: str = "w") -> None:
        path, text = value
        self.tell("call", id=path, name="write", input={"path": path})
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open(how) as file:
            file.write(text)
        self.tell("edited", path=path, diff="+" + text)
        self.tell("result", id=path, ok=True, output="")

    def _do_append(self, value: list[str]) -> None:
        self._do_write(value, "a")

    def _do_run(self, command: str) -> None:
        self.tell("call", id=command, name="run", input={"command": command})
        shell = ["/bin/sh", "-c", command]
        ran = subprocess.run(shell, check=False, capture_output=True, text=True)
        said = ran.stdout + ran.stderr
        self.tell("result", id=command, ok=ran.returncode == 0, output=said)

    def _do_desk(self, value: list[Any]) -> None:
        """[PATH, BODY, TOKEN]: what the desk of its task answers, it says."""
        path, body, *token = value
        self.tell("call", id=path, name="desk", input={"path": path})
        bearer = token[0] if token else os.environ["PADDOCK_TASK_TOKEN"]
        if bearer.startswith("@"):
            bearer = Path(bearer[1:]).read_text().strip()
        place = os.environ["PADDOCK_TASK_URL"].rpartition("/")[2]
        desk = http.client.HTTPConnection(place, timeout=60)
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        desk.request("POST", path, json.dumps(body), headers)
        answer = desk.getresponse()
        said = f"{answer.status} {answer.read().decode()}"
        desk.close()
        self.tell("result", id=path, ok=True, output=said)
        self.tell("say", text=said)

    def _do_sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _do_clock(self, times: int) -> None:
        for _ in range(times):
            self.tell("say", text=repr(time.time()))
            time.sleep(0.05)

    def _do_usage(self, value: dict[str, Any]) -> None:
        self.tell("usage", **value)

    def _do_await(self, count: int) -> None:
        while len(self.remembered()["heard"]) < count:
            if not self.attend(3600.0):
                sys.exit(3)

    def _do_flood(self, size: int) -> None:
        line = json.dumps({"type": "say", "text": "x" * 900}).encode() + b"\n"
        for _ in range(size // len(line) + 1):
            os.write(1, line)

    def _do_garbage(self, count: int) -> None:
        for number in range(count):
            os.write(1, b"\x00\xff{not json " + str(number).encode() + b"\n")

    def _do_endless(self, size: int) -> None:
        while size > 0:
            size -= os.write(1, b"x" * min(size, 65536))
        os.write(1, b"\n")

    def _do_crash(self, code: int) -> None:
        self.remember(done=self.remembered()["done"] + 1)
        sys.stderr.write("it went wrong\n")
        sys.stderr.flush()
        os._exit(code)

    def _do_die(self, name: str) -> None:
        self.remember(done=self.remembered()["done"] + 1)
        os.kill(os.getpid(), getattr(signal, name))

    def _do_hang(self, seconds: float) -> None:
        """Once: who resumes it finds this done."""
        self.remember(done=self.remembered()["done"] + 1)
        time.sleep(seconds)

    def _do_stubborn(self, _: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _do_silent(self, _: Any) -> None:
        os._exit(0)

    def _do_fail(self, text: str) -> None:
        self.tell("failed", text=text)
        sys.exit(1)


def of_review(session: str, reviews: list[Any]) -> Any:
    """The steps of the next one; None where the session has begun."""
    directory = Path.home() / ".scripted"
    directory.mkdir(exist_ok=True)
    if (directory / f"{session}.json").exists():
        return None
    counted = directory / "reviews"
    count = int(counted.read_text()) if counted.exists() else 0
    counted.write_text(str(count + 1))
    return reviews[min(count, len(reviews) - 1)]


def main() -> None:
    first = b""
    while not first.endswith(b"\n"):
        data = os.read(0, 1)
        if not data:
            sys.exit("nobody said what to do")
        first += data
    wish = json.loads(first)
    if wish.get("reviews"):
        wish["steps"] = of_review(wish["session"], wish["reviews"])
    agent = Agent(wish["session"], wish["steps"], wish["words"])
    if wish["steps"] is None and wish.get("goes_on") and not agent.memory.exists():
        agent.tell("failed", text=f"there is no session {agent.session}")
        return
    agent.work()


if __name__ == "__main__":
    main()
