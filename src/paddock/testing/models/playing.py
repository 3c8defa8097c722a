"""Which script a request is about, how far it has come, and what is answered: pure decisions.

The place in a script follows from the conversation alone, as each request holds all of it. So
retries, several agents at once, resumed sessions and requests on the side move nothing.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from paddock.testing.models.conversation import Asked, Entry, turns
from paddock.testing.models.reply import Reply
from paddock.testing.models.schema import example
from paddock.testing.models.script import Script, Turn, Usage
from paddock.testing.models.tools import NoTool, resolved

TITLE = "Scripted title"

_SESSIONS = ("x-claude-code-session-id", "thread-id", "x-session-id", "agent-session-id")


class Unplayable(Exception):
    """No reply follows from the scripts; the asker gets this as an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Step:
    """A turn of a script for one conversation; no script and no number for requests on the side."""

    turn: Turn
    conversation: str
    script: str = ""
    number: int | None = None


def find(scripts: Sequence[Script], asked: Asked, key: str) -> Script:
    """By key, else by the newest marker that a user has said, else the one that is for the rest."""
    for script in scripts:
        if script.key and script.key == key:
            return script
    marked = {script.marker: script for script in scripts if script.marker}
    for entry in reversed(asked.entries):
        said = [marker for marker in marked if entry.role == "user" and marker in entry.text]
        if said:
            return marked[max(said, key=len)]
    for script in scripts:
        if not script.key and not script.marker:
            return script
    if not marked:
        raise Unplayable(401, "no script has this API key, and none goes without a key")
    known = ", ".join(sorted(marked))
    raise Unplayable(400, f"no script is for this: the prompt has none of the markers {known}")


def step(script: Script, asked: Asked, headers: Mapping[str, str]) -> Step:
    """The turn that comes next, or a short answer to a request on the side."""
    conversation = _conversation(asked, headers)
    if not asked.tools and not script.without_tools:
        said = TITLE if asked.schema is None else json.dumps(example(asked.schema))
        return Step(Turn(say=said, usage=Usage(10, 5)), conversation)
    number = _turns_played(script, asked.entries)
    if number < len(script.turns):
        return Step(script.turns[number], conversation, script.name, number)
    if script.afterwards:
        return Step(script.afterwards, conversation, script.name, number)
    raise Unplayable(
        400,
        f"the script {script.name!r} is over: it has {len(script.turns)} turns, and this asks for "
        f"turn {number + 1}; add turns, or `afterwards`",
    )


def reply(step: Step, asked: Asked, created: int) -> Reply:
    """What the turn comes to with the tools of this agent."""
    before = turns(asked.entries)
    try:
        calls = tuple(resolved(call, asked) for call in step.turn.calls)
    except NoTool as error:
        place = f"turn {(step.number or 0) + 1} of {step.script!r}"
        raise Unplayable(400, f"{place} cannot be played: {error}") from error
    return Reply(
        model=asked.model,
        text=step.turn.say,
        thinking=step.turn.think,
        calls=calls,
        usage=step.turn.usage,
        salt=step.conversation[:6],
        number=len(before) + 1,
        call_number=sum(len(turn.calls) for turn in before) + 1,
        created=created,
    )


def _turns_played(script: Script, entries: Sequence[Entry]) -> int:
    """Of what follows the marker, where there is one: a later prompt may begin a script anew."""
    said = [
        number
        for number, entry in enumerate(entries)
        if script.marker and entry.role == "user" and script.marker in entry.text
    ]
    after = entries[said[-1] + 1 :] if said else entries
    return sum(_is_of(script, turn) for turn in turns(after))


def _is_of(script: Script, turn: Entry) -> bool:
    """Some agents begin with words that they put into the model's mouth. Those do not count."""
    text = turn.text.strip()
    if turn.calls or not text:
        return True
    scripted = [each.say.strip() for each in script.turns]
    # An agent that was interrupted keeps the beginning; one that annotates adds to the end.
    return any(say.startswith(text) or (say and text.startswith(say)) for say in scripted)


def _conversation(asked: Asked, headers: Mapping[str, str]) -> str:
    """What tells this conversation from others that play the same script."""
    session = next((headers[name] for name in _SESSIONS if headers.get(name)), "")
    begun = takewhile(lambda entry: entry.role != "assistant", asked.entries)
    known = session or "\n".join(entry.text for entry in begun)
    return hashlib.sha256(known.encode(errors="replace")).hexdigest()[:16]
