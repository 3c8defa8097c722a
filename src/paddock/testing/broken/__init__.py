"""Providers that are wrong on purpose: the proof that every check can fail."""

from paddock.testing.broken import (
    agents,
    archiving,
    checkpointing,
    creating,
    fencing,
    ignoring,
    living,
    lying,
    sleeping,
    volumes,
)
from paddock.testing.broken.defect import Defect

DEFECTS: tuple[Defect, ...] = (
    *creating.DEFECTS,
    *living.DEFECTS,
    *archiving.DEFECTS,
    *sleeping.DEFECTS,
    *checkpointing.DEFECTS,
    *ignoring.DEFECTS,
    *lying.DEFECTS,
    *fencing.DEFECTS,
    *volumes.DEFECTS,
    *agents.DEFECTS,
)

__all__ = ["DEFECTS", "Defect"]
