"""Patches of OpenAI's models, read for the files that they are about."""

import pytest

from paddock.adapters.agents.acp_tools import updated
from paddock.adapters.agents.patches import files_of
from paddock.domain.agent_event import AgentEventKind

PATCH = """*** Begin Patch
*** Add File: new.txt
+one
+two
*** Update File: src/old.txt
*** Move to: src/moved.txt
@@ def f():
-hi
+ho
 there
*** Delete File: gone.txt
*** End Patch
"""


def test_every_file_is_named_with_what_becomes_of_it():
    added, changed, gone = files_of(PATCH)
    assert (added.path, added.kind) == ("new.txt", "add")
    assert added.diff == "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    assert (changed.path, changed.kind) == ("src/old.txt", "update")
    assert changed.diff == ("--- a/src/old.txt\n+++ b/src/old.txt\n@@ def f():\n-hi\n+ho\n there\n")
    assert (gone.path, gone.kind, gone.diff) == ("gone.txt", "delete", "")


@pytest.mark.parametrize("text", ["", "hello", "*** Begin Patch", "*** Add File: a\n+cut off"])
def test_what_is_no_whole_patch_is_about_nothing(text: str):
    assert list(files_of(text)) == []


def test_a_tool_that_was_called_with_a_patch_has_edited_its_files():
    asked = {"toolCallId": "c1", "title": "apply_patch", "kind": "other", "status": "in_progress"}
    calls, _ = updated({}, {**asked, "rawInput": {"patchText": PATCH}})
    _, events = updated(calls, {"toolCallId": "c1", "status": "completed"})
    edited = [each.data for each in events if each.kind is AgentEventKind.FILE_EDITED]
    assert [(each["path"], each["kind"]) for each in edited] == [
        ("new.txt", "add"),
        ("src/old.txt", "update"),
        ("gone.txt", "delete"),
    ]
    _, failed = updated(calls, {"toolCallId": "c1", "status": "failed"})
    assert not [each for each in failed if each.kind is AgentEventKind.FILE_EDITED]
