"""Values that were lent are known for as long as somebody may have them."""

import base64
import os
from dataclasses import replace

import pytest

from paddock.adapters.store.store import open_store
from paddock.adapters.vault import VARIABLE, KeyVault
from paddock.domain.broker.binding import Way
from paddock.domain.broker.lending import MOST, MOST_CHARS, kept_values
from paddock.domain.errors import Unavailable
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.records import SANDBOX_PREFIX, SNAPSHOT_PREFIX, SnapshotRecord
from paddock.domain.sandbox import SandboxState
from paddock.domain.secret import TEAM_SCOPE, AccessPolicy
from paddock.domain.task import TaskRecord
from paddock.domain.task_wish import TaskWish
from paddock.domain.team import Team
from paddock.services.bindings import Binding, Bindings
from paddock.services.exposing import Exposing
from paddock.services.lent import Lent
from paddock.services.secrets import Secrets, SecretWish
from paddock.services.system import system
from paddock.services.task_masks import Masks
from paddock.testing.clock import ManualClock
from tests.domain.test_records import record

TEAM = "tem_a"
WHO = system(TEAM, "test")
VALUE = "lent-value-0123456789"


def key():
    return base64.b64encode(os.urandom(32)).decode()


@pytest.fixture
async def store(tmp_path):
    async with open_store(tmp_path / "s.db") as made:
        await made.write(lambda tx: tx.teams.add(Team(TEAM, "a", 0.0)))
        yield made


class Lending:
    """A server's part in it, with the keys that it has."""

    def __init__(self, store, place, keys):
        clock = ManualClock()
        self.clock = clock
        vault = KeyVault.open_place(place, {VARIABLE: keys})
        self.secrets = Secrets(store, clock, vault)
        self.bindings = Bindings(store, clock, self.secrets)
        self.lent = Lent(store, vault, self.secrets)
        self.exposing = Exposing(store, clock, self.secrets, self.bindings, guests=None)

    async def lend(self):
        wish = SecretWish(VALUE, policy=AccessPolicy.AGENT_ACCESS)
        await self.secrets.put(WHO, "KEY", wish)
        binding = Binding(TEAM, TEAM_SCOPE, "KEY", Way.HEADER, ("api.example",), expose=True)
        await self.bindings.put(WHO, replace(binding, expires_at=self.clock.wall() + 9))

    async def masked(self, box=None):
        box = box or BOX

        async def inside(box):
            found = await self.exposing.values(box, lambda _box, each: f"({each.secret})")
            return await self.lent.of(box) | found

        task = TaskRecord("tsk_a", TEAM, "a", TaskWish("do it", "command"), 1.0, 1.0)
        mask = await Masks(inside, self.lent.keep).of(task, box)
        return mask.text(f"it is {VALUE}")


BOX = replace(record(), team_id=TEAM)


@pytest.mark.proves("K9", "Q4")
async def test_what_cannot_be_opened_now_is_not_taken_for_nothing(store, tmp_path):
    keys = key()
    first = Lending(store, tmp_path, keys)
    await first.lend()
    assert await first.masked() == "it is (KEY)"
    other = Lending(store, tmp_path, key())  # takes over, and its keys are not there yet
    await other.bindings.load()
    with pytest.raises(Unavailable, match="which is not here"):
        await other.masked()
    assert await other.exposing.names(BOX) == []  # who only looks is answered
    again = Lending(store, tmp_path, keys)
    await again.bindings.load()
    assert await again.masked() == "it is (KEY)"


@pytest.mark.proves("K9")
async def test_what_was_lent_is_masked_when_it_is_lent_no_more(store, tmp_path):
    made = Lending(store, tmp_path, key())
    await made.lend()
    made.clock.advance(10)
    assert await made.exposing.names(BOX) == []
    assert await made.masked() == "it is (KEY)"
    await made.secrets.put(WHO, "KEY", SecretWish(policy=AccessPolicy.CONTROL_PLANE_ONLY))
    assert await made.masked() == "it is (KEY)"
    await made.lent.keep(BOX, {VALUE: "(KEY)"})
    await made.secrets.delete(WHO, "KEY")
    assert await made.masked() == "it is (KEY)"


@pytest.mark.proves("K9")
async def test_what_was_lent_is_known_to_any_server_until_its_sandbox_is_gone(store, tmp_path):
    keys = key()
    first = Lending(store, tmp_path, keys)
    box = replace(BOX, id=new_id(SANDBOX_PREFIX))
    await store.write(lambda tx: tx.sandboxes.add(box))
    await first.lent.keep(box, {VALUE: "(KEY)"})
    await first.lent.keep(box, {"another-0123456789": "(KEY)"})
    await first.lent.keep(box, {})
    assert VALUE not in str(await store.read(lambda tx: tx.values.all("lent.")))
    newer = key()
    await Lending(store, tmp_path, f"{newer},{keys}").secrets.rotate(WHO)
    other = Lending(store, tmp_path, newer)
    assert await other.masked(box) == "it is (KEY)"

    copy = replace(box, id=new_id(SANDBOX_PREFIX), name="copy", parent_id=box.id)
    await store.write(lambda tx: tx.sandboxes.add(copy))
    await other.lent.keep(copy, {})
    gone = replace(box, state=SandboxState.DELETED, version=0)
    await store.write(lambda tx: tx.sandboxes.replace(gone))
    await other.lent.sweep()
    assert await other.masked(box) == f"it is {VALUE}"
    assert await other.masked(copy) == "it is (KEY)"


@pytest.mark.proves("K9")
async def test_a_variable_that_was_changed_is_masked_as_it_was_too(store, tmp_path):
    made = Lending(store, tmp_path, key())
    box = replace(BOX, env={"DEPLOY_TOKEN": VALUE})
    assert await made.masked(box) == "it is (DEPLOY_TOKEN)"
    assert await made.masked(replace(box, env={"DEPLOY_TOKEN": "other"})) == "it is (DEPLOY_TOKEN)"


def test_of_very_many_values_the_newest_are_kept():
    known = {f"value-{number}": "(A)" for number in range(MOST)}
    kept, dropped = kept_values(known, {"value-1": "(A)", "new": "(B)"})
    assert (len(kept), dropped) == (MOST, 1)
    assert "value-0" not in kept
    assert list(kept)[-2:] == ["value-1", "new"]
    kept, dropped = kept_values({"a": "", "b" * MOST_CHARS: ""}, {"c" * 9: ""})
    assert (list(kept), dropped) == (["c" * 9], 2)
    assert kept_values({}, {"b" * (MOST_CHARS + 1): "(B)"})[1] == 0


async def test_what_is_lent_outlives_its_sandbox_as_long_as_a_snapshot_of_it(store, tmp_path):
    made = Lending(store, tmp_path, key())
    box = replace(BOX, id=new_id(SANDBOX_PREFIX), state=SandboxState.DELETED)
    kept = SnapshotRecord(new_id(SNAPSHOT_PREFIX), TEAM, "kept", "local", 1.0, sandbox_id=box.id)
    await store.write(lambda tx: (tx.sandboxes.add(box), tx.snapshots.add(kept)))
    await made.lent.keep(box, {VALUE: "(KEY)"})
    await made.lent.sweep()
    restored = replace(BOX, id=new_id(SANDBOX_PREFIX), snapshot_id=kept.id)
    await made.lent.keep(restored, {})
    assert await made.masked(restored) == "it is (KEY)"

    def end(tx):
        tx.snapshots.remove(kept.id)
        tx.events.append([Event(TEAM, EventKind.SNAPSHOT_DELETED, kept.id, 1.0, {})])

    await store.write(end)
    await made.lent.sweep()
    assert await made.masked(box) == f"it is {VALUE}"


async def test_what_does_not_open_any_more_keeps_nobody_from_changing_the_key(store, tmp_path):
    lost = Lending(store, tmp_path, key())
    await lost.lent.keep(BOX, {VALUE: "(KEY)"})
    keys = key()
    made = Lending(store, tmp_path, f"{key()},{keys}")
    with pytest.raises(Unavailable):
        await made.masked()
    await made.secrets.rotate(WHO)
    assert await made.masked() == f"it is {VALUE}", "nobody can know it any more"
