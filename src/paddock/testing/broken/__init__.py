"""Providers that are wrong on purpose: the proof that every check can fail."""

from paddock.testing.broken import (
    archiving,
    checkpointing,
    creating,
    fencing,
    ignoring,
    living,
    lying,
    sleeping,
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
)

__all__ = ["DEFECTS", "Defect"]
