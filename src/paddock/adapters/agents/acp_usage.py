"""Counts of tokens in answers of the Agent Client Protocol, where servers put them differently."""

from paddock.adapters.agents.lines import Json, table, whole
from paddock.domain.agent_event import AgentEvent, AgentEventKind


def usage(result: Json) -> list[AgentEvent]:
    """Of the turn that this answer is the end of; nothing if it does not say any."""
    given = table(result, "usage")
    if given:
        return _event(_counted(given))
    quota = table(result, "_meta", "quota", "token_count")
    return _event((whole(quota, "input_tokens"), 0, whole(quota, "output_tokens"), 0))


def _counted(given: Json) -> tuple[int, int, int, int]:
    fresh, cached = whole(given, "inputTokens"), whole(given, "cachedReadTokens")
    written, output = whole(given, "cachedWriteTokens"), whole(given, "outputTokens")
    thought = whole(given, "thoughtTokens")
    # Some count what came from a cache as input, and others beside it: the sum tells.
    if whole(given, "totalTokens") >= fresh + cached + written + output:
        fresh += cached + written
    if whole(given, "totalTokens") >= fresh + output + thought:
        output += thought
    return fresh, cached, output, thought


def _event(counts: tuple[int, int, int, int]) -> list[AgentEvent]:
    if not any(counts):
        return []
    names = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    return [AgentEvent(AgentEventKind.USAGE, dict(zip(names, counts, strict=True)))]
