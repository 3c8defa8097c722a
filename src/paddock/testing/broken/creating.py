"""Providers that get creation, keys, labels or their own description wrong."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

from paddock.domain.errors import InvalidRequest, NotFound, PaddockError, QuotaExceeded
from paddock.domain.ids import new_ulid
from paddock.domain.sandbox import Resources, SandboxState
from paddock.ports.provider import Health, Observation, Ref, SandboxSpec
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.records import Record
from paddock.testing.reference import ReferenceProvider
from paddock.testing.simulated import SimulatedProvider


class Unusable(ReferenceProvider):
    """Says that it cannot be used."""

    async def check(self) -> Health:
        return replace(await super().check(), usable=False)


class Hasty(ReferenceProvider):
    """Returns from create() as if it were not finished."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        return replace(await super().create(key, spec), state=SandboxState.CREATING)


class DropsEnv(ReferenceProvider):
    """Forgets the variables of the spec."""

    def _env(self, record: Record) -> dict[str, str]:
        return super()._env(replace(record, env={}))


class MangledEnv(ReferenceProvider):
    """Passes variables on as lines of text."""

    def _env(self, record: Record) -> dict[str, str]:
        env = super()._env(record)
        return {name: value.splitlines()[0] if value else value for name, value in env.items()}


class AnyTemplate(ReferenceProvider):
    """Makes a sandbox of whatever name it is given."""

    def _known_template(self, template: str) -> None:
        pass


class LeavesHalf(ReferenceProvider):
    """Looks at the template only after it has made something."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        seen = await super().create(key, replace(spec, template="plain"))
        if spec.template != "plain":
            raise NotFound(f"no template {spec.template}")
        return seen


class AnyLimits(ReferenceProvider):
    """Promises what no host has."""

    def _check_limits(self, spec: SandboxSpec) -> None:
        pass


class HasOthersWait(ReferenceProvider):
    """Says of what no host has that there is no room for it just now."""

    def _check_limits(self, spec: SandboxSpec) -> None:
        try:
            super()._check_limits(spec)
        except PaddockError as error:
            raise QuotaExceeded(error.message) from error


class FindsByAnyLabel(ReferenceProvider):
    """Takes one matching label for all of them."""

    async def find(self, labels: Mapping[str, str]) -> AsyncIterator[Observation]:
        async for seen in super().find({}):
            if not labels or labels.items() & seen.labels.items():
                yield seen


class FewLabels(ReferenceProvider):
    """Keeps four labels and says nothing about the others."""

    def _observation(self, record: Record) -> Observation:
        kept = dict(list(record.labels.items())[:4])
        return replace(super()._observation(record), labels=kept)


class MakesUpTheAbsent(ReferenceProvider):
    """Has an answer for every reference."""

    async def observe(self, ref: Ref) -> Observation:
        try:
            return await super().observe(ref)
        except NotFound:
            return Observation(ref, "", SandboxState.DELETED, None, {}, Resources(), "", 0.0)


class AnyNumber(SimulatedProvider):
    """Has maxima and does not look at them."""

    def _validate(self, spec: SandboxSpec, source: str) -> None:
        super()._validate(replace(spec, labels={}, ports=()), source)


class FewPorts(ReferenceProvider):
    """Has a maximum and does not say so."""

    def _validate(self, spec: SandboxSpec, source: str) -> None:
        super()._validate(spec, source)
        if len(spec.ports) > 8:
            raise InvalidRequest("too many ports")


class NoImages(SimulatedProvider):
    """Claims to start any image, and starts none."""

    def _known_template(self, template: str) -> None:
        ReferenceProvider._known_template(self, template)


class NewEachTime(ReferenceProvider):
    """Does not know keys."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        return replace(await super().create(new_ulid(), spec), key=key)


class LooksBeforeItLocks(ReferenceProvider):
    """Asks whether the key is taken, then goes to work."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        if known := self._records.of_key(key):
            return self._observation(known)
        made = self._record((await super().create(new_ulid(), spec)).ref)
        return self._observation(self._records.write(replace(made, key=key)))


class RemembersInMemory(ReferenceProvider):
    """Knows the keys of this instance only."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._known: dict[str, Observation] = {}
        self._lock = asyncio.Lock()

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        async with self._lock:
            if key not in self._known:
                own = f"{key}-{id(self)}"
                self._known[key] = replace(await super().create(own, spec), key=key)
            return self._known[key]


class IgnoresTheSpec(ReferenceProvider):
    """Gives whatever is there under the key."""

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        known = self._records.of_key(key)
        return self._observation(known) if known else await super().create(key, spec)


class KeepsTheDisk(ReferenceProvider):
    """Gives a new sandbox the disk of the old one with the same key."""

    async def _remove(self, record: Record) -> None:
        if self._disk(record.id).exists():
            self._disk(record.id).rename(self._attic(record))
        await super()._remove(record)

    def _lay_out(self, record: Record, spec: SandboxSpec, source: str) -> None:
        super()._lay_out(record, spec, source)
        if self._attic(record).exists():
            self._disk(record.id).rmdir()
            self._attic(record).rename(self._disk(record.id))

    def _attic(self, record: Record) -> Path:
        return self._place / f"attic-{record.key}"


DEFECTS = (
    Defect("says that it is unusable", Unusable, ("it_reports_itself_usable",)),
    Defect(
        "claims to change egress live, but not to set it at all",
        claiming(ReferenceProvider, live_egress=True),
        ("its_capabilities_are_plain_and_coherent",),
    ),
    Defect("returns too early", Hasty, ("a_new_sandbox_runs_and_its_guest_answers",)),
    Defect("drops the env", DropsEnv, ("the_environment_of_the_spec_reaches_every_command",)),
    Defect("cuts the env", MangledEnv, ("the_environment_of_the_spec_reaches_every_command",)),
    Defect(
        "takes any template",
        AnyTemplate,
        (
            "an_unknown_template_is_not_found_and_nothing_is_made",
            "any_image_can_be_started_or_is_refused",
        ),
    ),
    Defect(
        "leaves a half-made sandbox behind",
        LeavesHalf,
        ("an_unknown_template_is_not_found_and_nothing_is_made",),
    ),
    Defect(
        "promises any limits", AnyLimits, ("impossible_limits_are_invalid_and_nothing_is_made",)
    ),
    Defect(
        "has others wait for what there can never be",
        HasOthersWait,
        ("impossible_limits_are_invalid_and_nothing_is_made",),
    ),
    Defect("finds by any label", FindsByAnyLabel, ("sandboxes_are_found_by_all_of_their_labels",)),
    Defect("makes up what is absent", MakesUpTheAbsent, ("an_absent_sandbox_is_not_found",)),
    Defect("drops labels", FewLabels, ("more_labels_than_it_holds_are_refused_beforehand",)),
    Defect(
        "has maxima and ignores them",
        AnyNumber,
        (
            "more_labels_than_it_holds_are_refused_beforehand",
            "more_ports_than_it_has_are_refused_beforehand",
        ),
    ),
    Defect(
        "has a maximum it does not declare",
        FewPorts,
        ("more_ports_than_it_has_are_refused_beforehand",),
    ),
    Defect("starts no image", NoImages, ("any_image_can_be_started_or_is_refused",)),
    Defect("knows no keys", NewEachTime, ("the_same_key_gives_the_same_sandbox",)),
    Defect("looks before it locks", LooksBeforeItLocks, ("concurrent_callers_share_one_creation",)),
    Defect(
        "remembers keys in memory",
        RemembersInMemory,
        (
            "the_same_key_gives_the_same_sandbox_after_a_restart",
            "two_instances_at_once_agree_or_exclude_each_other",
        ),
    ),
    Defect(
        "ignores that the spec differs",
        IgnoresTheSpec,
        ("the_same_key_with_another_spec_is_a_conflict",),
    ),
    Defect(
        "keeps the disk for the next one",
        KeepsTheDisk,
        ("a_key_is_free_again_after_its_sandbox_was_destroyed",),
    ),
)
