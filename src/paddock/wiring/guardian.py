"""The guardian's rules: those that are built in, and those of whoever runs this installation."""

import importlib
import re
from collections.abc import Iterable
from dataclasses import replace

from paddock.domain.errors import InvalidRequest
from paddock.domain.guardian import BUILT_IN, Act, GuardianConfig, GuardianPolicy, Rule
from paddock.domain.guardian.policy import RuleName

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def rules_of(config: GuardianConfig) -> tuple[tuple[Rule, ...], GuardianPolicy]:
    """All of them, and what each does where a task says nothing of it."""
    own, policy = own_rules(config.own), config.policy()
    acts = {rule.name: Act(getattr(rule, "act", Act.NOTE)) for rule in own}
    return (*BUILT_IN, *own), replace(policy, acts={**policy.acts, **acts})


def own_rules(names: Iterable[str]) -> tuple[Rule, ...]:
    """Those that are not Paddock's: `package.module:name`, where the name makes one."""
    found: dict[str, Rule] = {}
    for each in names:
        module, _, name = each.partition(":")
        try:
            rule: Rule = getattr(importlib.import_module(module), name)()
            _check(rule, found)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"tasks.guardian.own names {each!r}, which is no rule: {error}",
                remediation="name a class with `name` and `judge` as package.module:Class",
            ) from error
        found[rule.name] = rule
    return tuple(found.values())


def _check(rule: Rule, before: Iterable[str]) -> None:
    if not isinstance(rule.name, str) or not _NAME.fullmatch(rule.name):
        raise ValueError(f"its name is {rule.name!r}, and may have a-z, 0-9 and _, up to 40 of it")
    if rule.name in set(RuleName) or rule.name in set(before):
        raise ValueError(f"there is a rule {rule.name} already")
    if not callable(rule.judge):
        raise TypeError("its judge is no method")
    if (act := getattr(rule, "act", Act.NOTE)) not in set(Act):
        raise ValueError(f"its act is {act!r}, and not one of {', '.join(Act)}")
