"""A model that follows a script, for agents and SDKs that talk to real model APIs.

It speaks Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's
GenerateContent.
"""

from paddock.testing.models.blocking import BlockingModel, scripted_model
from paddock.testing.models.conversation import Asked, Entry, Tool
from paddock.testing.models.record import Request
from paddock.testing.models.script import (
    BadScript,
    Call,
    CallMcp,
    CallTool,
    Cut,
    EditFile,
    Fail,
    ReadFile,
    RunShell,
    Script,
    Turn,
    Usage,
    WriteFile,
    load_scripts,
    parse_scripts,
)
from paddock.testing.models.server import ScriptedModel

__all__ = [
    "Asked",
    "BadScript",
    "BlockingModel",
    "Call",
    "CallMcp",
    "CallTool",
    "Cut",
    "EditFile",
    "Entry",
    "Fail",
    "ReadFile",
    "Request",
    "RunShell",
    "Script",
    "ScriptedModel",
    "Tool",
    "Turn",
    "Usage",
    "WriteFile",
    "load_scripts",
    "parse_scripts",
    "scripted_model",
]
