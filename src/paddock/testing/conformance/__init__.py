"""What every provider has to keep: one suite, for its tests and for operators alike."""

from paddock.testing.conformance.catalogue import CHECKS
from paddock.testing.conformance.check import Check
from paddock.testing.conformance.expect import Nonconformity
from paddock.testing.conformance.outside import internet, listener_here, neighbour
from paddock.testing.conformance.runner import Outcome, run_conformance
from paddock.testing.conformance.subject import Open, Subject, Terms

__all__ = [
    "CHECKS",
    "Check",
    "Nonconformity",
    "Open",
    "Outcome",
    "Subject",
    "Terms",
    "internet",
    "listener_here",
    "neighbour",
    "run_conformance",
]
