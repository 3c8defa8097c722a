"""An agent without a model: it does what its prompt says, step by step, and can do it badly."""

from paddock.testing.agent.adapter import ScriptedAgent, ScriptedReviewer
from paddock.testing.agent.steps import prompt_of

__all__ = ["ScriptedAgent", "ScriptedReviewer", "prompt_of"]
