"""The guardian: rules that watch what agents do, and what is done when one of them speaks up."""

from paddock.domain.guardian.dangers import Place
from paddock.domain.guardian.history import History, Intervention, history_of, kept
from paddock.domain.guardian.policy import Act, GuardianConfig, GuardianPolicy
from paddock.domain.guardian.rules import BUILT_IN, Facts, Finding, Rule
from paddock.domain.guardian.watching import brought_up, watch

__all__ = [
    "BUILT_IN",
    "Act",
    "Facts",
    "Finding",
    "GuardianConfig",
    "GuardianPolicy",
    "History",
    "Intervention",
    "Place",
    "Rule",
    "brought_up",
    "history_of",
    "kept",
    "watch",
]
