"""What a scripted agent is told to do."""

import json
from typing import Any

MARK = "@steps "


def prompt_of(*steps: dict[str, Any], words: str = "") -> str:
    """A prompt that holds the steps: each is a mapping with one verb, such as `{"say": "hello"}`.

    say TEXT · write [PATH, TEXT] · append [PATH, TEXT] · run COMMAND · sleep SECONDS ·
    clock TIMES (says what time it is) · usage {…} · echo (says what it was begun with) ·
    end TEXT (its last words for now: the next run goes on behind it) ·
    await N (messages) · flood BYTES · garbage N (lines) · endless BYTES (one line) · crash CODE ·
    desk [PATH, BODY] (asks its task's desk, and says what that answers; a third is the token,
    or `@` and the file that has it) ·
    die SIGNAL · hang SECONDS (not again when resumed) · stubborn (ignores SIGTERM) ·
    silent (ends without a word) · fail TEXT
    """
    return f"{words}\n{MARK}{json.dumps(list(steps))}"
