"""Ways in by SSH on both databases."""

from dataclasses import replace

import pytest

from paddock.domain.errors import NotFound
from paddock.domain.ssh import Proof, SshAccess
from paddock.ports.store import Page
from tests.adapters.store.samples import next_id


def access(team, **changes):
    record = SshAccess(
        id=next_id("ssh"),
        team_id=team.id,
        sandbox_id="sbx_1",
        actor="tok_1",
        proof=Proof.TOKEN,
        digest="digest",
        created_at=1000.0,
        expires_at=4600.0,
    )
    return replace(record, **changes)


async def test_everything_about_an_access_is_kept(store, team):
    for changes in (
        {},
        {"proof": Proof.KEY, "digest": "SHA256:abc", "user": "root"},
        {"revoked_at": 2.5, "used_at": 3.5},
    ):
        kept = access(team, **changes)
        await store.write(lambda tx, one=kept: tx.ssh.add(one))
        assert await store.read(lambda tx, one=kept: tx.ssh.get(one.id)) == kept
    assert await store.read(lambda tx: tx.ssh.get("ssh_nobody")) is None


async def test_they_are_listed_newest_first_by_team_and_sandbox(store, team, others):
    made = [access(team), access(others), access(team, sandbox_id="sbx_2"), access(team)]
    await store.write(lambda tx: [tx.ssh.add(one) for one in made] and None)
    ours = await store.read(lambda tx: tx.ssh.list(team.id, "sbx_1", Page()))
    assert ours == [made[3], made[0]]
    rest = await store.read(lambda tx: tx.ssh.list(team.id, "sbx_1", Page(5, made[3].id)))
    assert rest == [made[0]]


async def test_a_key_finds_its_accesses_and_no_token(store, team, others):
    keys = [access(one, proof=Proof.KEY, digest="SHA256:k") for one in (team, others)]
    token = access(team, digest="SHA256:k")
    await store.write(lambda tx: [tx.ssh.add(one) for one in (*keys, token)] and None)
    assert await store.read(lambda tx: tx.ssh.with_key("SHA256:k")) == keys[::-1]


async def test_a_stale_copy_neither_revives_an_access_nor_forgets_its_use(store, team):
    read = access(team)
    await store.write(lambda tx: tx.ssh.add(read))
    await store.write(lambda tx: tx.ssh.replace(replace(read, revoked_at=5.0)))
    await store.write(lambda tx: tx.ssh.replace(replace(read, used_at=7.0)))
    await store.write(lambda tx: tx.ssh.replace(replace(read, used_at=6.0)))
    await store.write(lambda tx: tx.ssh.replace(read))
    now = await store.read(lambda tx: tx.ssh.get(read.id))
    assert (now.revoked_at, now.used_at) == (5.0, 7.0)
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.ssh.replace(access(team)))


async def test_what_ended_long_ago_is_forgotten_a_few_at_a_time(store, team):
    made = [access(team, expires_at=float(n)) for n in range(5)]
    await store.write(lambda tx: [tx.ssh.add(one) for one in made] and None)
    assert await store.write(lambda tx: tx.ssh.prune(3.0, 2)) == 2
    assert await store.write(lambda tx: tx.ssh.prune(3.0, 2)) == 1
    assert await store.write(lambda tx: tx.ssh.prune(3.0, 2)) == 0
    left = await store.read(lambda tx: tx.ssh.list(team.id, "sbx_1", Page()))
    assert left == made[:2:-1]
