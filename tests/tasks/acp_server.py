"""A small agent that speaks the Agent Client Protocol, and echoes its prompts."""

import json
import sys
from pathlib import Path


def say(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def update(kind, **more):
    params = {"sessionId": "s1", "update": {"sessionUpdate": kind, **more}}
    say(method="session/update", params=params)


def prompted(number, prompt):
    said = "".join(block["text"] for block in prompt)
    if "wait" in said:
        return number
    update("agent_message_chunk", content={"type": "text", "text": f"heard {said}"})
    Path("heard.txt").write_text(f"{said}\n")
    say(id=number, result={"stopReason": "end_turn"})
    return None


def main():
    waiting = None
    for line in sys.stdin:
        asked = json.loads(line)
        match asked["method"]:
            case "initialize":
                say(id=asked["id"], result={"protocolVersion": 1, "agentInfo": {"version": "7"}})
            case "session/new":
                say(id=asked["id"], result={"sessionId": "s1"})
            case "session/prompt":
                waiting = prompted(asked["id"], asked["params"]["prompt"])
            case "session/cancel":
                say(id=waiting, result={"stopReason": "cancelled"})


main()
