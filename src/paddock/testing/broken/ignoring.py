"""Providers that leave out of a snapshot what nobody named, or not what somebody did."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paddock.domain.ignoring import LeftOut, Rule
from paddock.domain.snapshot import Snapshot
from paddock.ports.provider import Capabilities, Observation, Ref, SandboxSpec
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.leaving_out import leave_out, remove
from paddock.testing.records import Record
from paddock.testing.reference import ReferenceProvider
from paddock.testing.simulated import SimulatedProvider

ONLY_THESE = "a_snapshot_leaves_out_what_rules_name_and_nothing_else"
NOTHING = "a_snapshot_without_rules_and_a_fork_leave_nothing_out"
KEYS = "a_key_stands_for_a_snapshot_with_its_rules"
REFUSES = "rules_that_could_lose_work_are_refused"


class ByName(SimulatedProvider):
    """Leaves out whatever is called so, at any depth."""

    def _leave_out(self, record: Record, copy: Path, rules: Sequence[Rule]) -> LeftOut:
        said = super()._leave_out(record, copy, rules)
        for entry in sorted(copy.rglob("*"), reverse=True):
            if any(rule.meets(entry.name) and not rule.is_pattern for rule in rules):
                remove(entry)
        return said


class AlongLinks(SimulatedProvider):
    """Looks for a rule's path wherever a link of the sandbox leads."""

    def _leave_out(self, record: Record, copy: Path, rules: Sequence[Rule]) -> LeftOut:
        inside = self._disk(record.id).resolve()
        for rule in rules:
            place = copy / Path("/", *rule.parent).relative_to(inside) / rule.name
            if place.parent.is_symlink() and place.exists():
                remove(place.resolve())
        return super()._leave_out(record, copy, rules)


class FromTheSandbox(SimulatedProvider):
    """Makes room in the sandbox, so that it need not be copied."""

    def _leave_out(self, record: Record, copy: Path, rules: Sequence[Rule]) -> LeftOut:
        disk = self._disk(record.id).resolve()
        leave_out(disk, disk, rules)
        return super()._leave_out(record, copy, rules)


class CopiesAll(SimulatedProvider):
    """Says that it has left something out, and has not."""

    def _leave_out(self, record: Record, copy: Path, rules: Sequence[Rule]) -> LeftOut:
        kept = copy.with_name("kept")
        self._copy(copy, kept)
        said = super()._leave_out(record, copy, rules)
        remove(copy)
        kept.rename(copy)
        return said


class Silent(SimulatedProvider):
    """Does not say what is missing."""

    def _leave_out(self, record: Record, copy: Path, rules: Sequence[Rule]) -> LeftOut:
        super()._leave_out(record, copy, rules)
        return LeftOut()


class Brackets(SimulatedProvider):
    """Takes the brackets of a name for a set of characters."""

    def _leave_out(self, record: Record, copy: Path, rules: Sequence[Rule]) -> LeftOut:
        sets = [replace(rule, name=rule.name.strip("[]")) for rule in rules]
        return super()._leave_out(record, copy, sets)


class OnceForAll(SimulatedProvider):
    """Applies the rules of one snapshot to every later one."""

    _last: tuple[str, ...] = ()

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        self._last = ignore or self._last
        return await super().snapshot(ref, key, memory=memory, ignore=self._last)


class ForksWithout(SimulatedProvider):
    """Applies the rules of the last snapshot to a fork."""

    _last: tuple[str, ...] = ()

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        self._last = ignore or self._last
        return await super().snapshot(ref, key, memory=memory, ignore=ignore)

    async def fork(self, ref: Ref, key: str, spec: SandboxSpec) -> Observation:
        forked = await super().fork(ref, key, spec)
        inside = self._disk(ref.id).resolve()
        leave_out(self._disk(forked.ref.id), inside, [Rule.parse(text) for text in self._last])
        return forked


class AnyRules(SimulatedProvider):
    """Gives whatever is there under the key, by whichever rules it was taken."""

    def _check_same(self, known: Snapshot, ref: Ref, **wish: object) -> None:
        super()._check_same(known, ref, memory=known.memory, ignore=known.ignore)


class Trusting(SimulatedProvider):
    """Forgives a rule that is none, and takes everything instead."""

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        good = tuple(rule for rule in ignore if rule.startswith("/") and rule.count("/") > 1)
        return await super().snapshot(ref, key, memory=memory, ignore=good)


class Obliging(SimulatedProvider):
    """Has said that it cannot, and takes everything instead of refusing."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, snapshot_ignore=False)

    async def snapshot(
        self, ref: Ref, key: str, *, memory: bool = False, ignore: tuple[str, ...] = ()
    ) -> Snapshot:
        return await super().snapshot(ref, key, memory=memory)


DEFECTS = (
    Defect("leaves out by name at any depth", ByName, (ONLY_THESE,)),
    Defect("leaves out along links", AlongLinks, (ONLY_THESE,)),
    Defect("leaves out of the sandbox itself", FromTheSandbox, (ONLY_THESE, NOTHING)),
    Defect("says what it has not left out", CopiesAll, (ONLY_THESE,)),
    Defect("does not say what it has left out", Silent, (ONLY_THESE,)),
    Defect("takes brackets for a set", Brackets, (ONLY_THESE,)),
    Defect("goes by the rules of before", OnceForAll, (NOTHING, KEYS)),
    Defect("leaves something out of a fork", ForksWithout, (NOTHING,)),
    Defect("gives a snapshot of other rules", AnyRules, (KEYS,)),
    Defect("forgives a rule that is none", Trusting, (REFUSES,)),
    Defect(
        "leaves out although it said that it cannot",
        Obliging,
        (ONLY_THESE, NOTHING, KEYS, REFUSES),
    ),
    Defect(
        "claims rules, but no snapshots",
        claiming(ReferenceProvider, snapshot_ignore=True),
        ("its_capabilities_are_plain_and_coherent",),
    ),
)
