"""Providers that are wrong on purpose: the proof that every check can fail."""

from paddock.testing.broken import checkpointing, creating, fencing, living, lying
from paddock.testing.broken.defect import Defect

DEFECTS: tuple[Defect, ...] = (
    *creating.DEFECTS,
    *living.DEFECTS,
    *checkpointing.DEFECTS,
    *lying.DEFECTS,
    *fencing.DEFECTS,
)

__all__ = ["DEFECTS", "Defect"]
