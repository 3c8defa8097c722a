"""Secrets: bound to their place, whole after a broken rotation, going only where they may."""

import base64
import os
from dataclasses import replace

import pytest

from paddock.adapters.store.store import open_store
from paddock.adapters.vault import FILE, VARIABLE, KeyVault
from paddock.domain.errors import Broken, Forbidden, InvalidRequest, NotFound, Unavailable
from paddock.domain.secret import TEAM_SCOPE, AccessPolicy, Use
from paddock.domain.team import Team
from paddock.ports.clock import SystemClock
from paddock.services.prompt_secrets import PromptSecrets
from paddock.services.secrets import Secrets, SecretWish
from paddock.services.system import system

TEAM, OTHER = "tem_a", "tem_b"
WHO = system(TEAM, "test")


def key():
    return base64.b64encode(os.urandom(32)).decode()


EVERY_DATABASE = True


@pytest.fixture
async def store(empty_database, tmp_path):
    async with open_store(empty_database or tmp_path / "s.db") as made:

        def begin(tx):
            for team in (TEAM, OTHER):
                tx.teams.add(Team(team, team.replace("_", "-"), 0.0))

        await made.write(begin)
        yield made


@pytest.fixture
def vault(tmp_path):
    return KeyVault.open_place(tmp_path, {})


@pytest.fixture
def secrets(store, vault):
    return Secrets(store, SystemClock(), vault)


@pytest.mark.proves("K2")
async def test_a_sealed_value_opens_only_in_its_place(store, secrets):
    await secrets.put(WHO, "A", SecretWish("first"))
    await secrets.put(WHO, "B", SecretWish("second"))
    a = await store.read(lambda tx: tx.secrets.get(TEAM, TEAM_SCOPE, "A"))
    for moved in (
        replace(a, name="B"),
        replace(a, team_id=OTHER),
        replace(a, version=2),
        replace(a, sealed=a.sealed[:-4] + ("AAA=" if a.sealed[-4:] != "AAA=" else "BBB=")),
    ):
        await store.write(lambda tx, moved=moved: tx.secrets.put(moved))
        with pytest.raises(Broken, match="does not open"):
            await secrets.value_for(moved.team_id, moved.name, Use.CONTROL_PLANE)
    assert "first" not in repr(a)
    assert a.sealed not in repr(a)


@pytest.mark.proves("K3")
async def test_every_policy_is_enforced(secrets):
    may = {
        AccessPolicy.CONTROL_PLANE_ONLY: {Use.CONTROL_PLANE},
        AccessPolicy.AGENT_ACCESS: {Use.CONTROL_PLANE, Use.AGENT},
        AccessPolicy.RUNTIME_ACCESS: {Use.CONTROL_PLANE, Use.RUNTIME},
        AccessPolicy.BOTH: set(Use),
    }
    for policy, uses in may.items():
        await secrets.put(WHO, "S", SecretWish("v", policy=policy))
        for use in Use:
            if use in uses:
                assert await secrets.value_for(TEAM, "S", use) == "v"
            else:
                with pytest.raises(Forbidden):
                    await secrets.value_for(TEAM, "S", use)
    with pytest.raises(NotFound):
        await secrets.value_for(OTHER, "S", Use.CONTROL_PLANE)


@pytest.mark.proves("K2")
async def test_a_rotation_that_breaks_off_loses_nothing_and_is_finished_later(
    store, vault, secrets, tmp_path
):
    names = [f"N{number:03}" for number in range(130)]
    for name in names:
        await secrets.put(WHO, name, SecretWish(f"value of {name}"))
    for writes in (0, 1, 1):
        breaking = Secrets(_Breaking(store, writes), SystemClock(), vault)
        with pytest.raises(Unavailable):
            await breaking.rotate(WHO)
        # A process that starts now, in the middle of it, reads everything.
        fresh = Secrets(store, SystemClock(), KeyVault.open_place(tmp_path, {}))
        for name in names:
            assert await fresh.value_for(TEAM, name, Use.CONTROL_PLANE) == f"value of {name}"
    assert len((tmp_path / FILE).read_text().split()) == 2
    left = await secrets.rotate(WHO)
    assert 0 < left < len(names)
    assert len((tmp_path / FILE).read_text().split()) == 1
    for name in names:
        assert await secrets.value_for(TEAM, name, Use.CONTROL_PLANE) == f"value of {name}"


class _Breaking:
    """A store that is lost after some writes."""

    def __init__(self, store, writes):
        self._store = store
        self._left = writes

    async def write(self, work):
        if not self._left:
            raise Unavailable("the database is gone")
        self._left -= 1
        return await self._store.write(work)


@pytest.mark.proves("T17", "K9")
async def test_no_secret_of_the_team_is_a_variable_and_who_tries_is_on_record(store, secrets):
    kept = {"app-own-value-of-it": ("A", "web"), "hidden-value-of-the-team": ("A", "")}
    kept |= {"key-of-no-variable": ("deploy-key", ""), "value-of-another-app": ("B", "other")}
    for value, (name, app) in kept.items():
        await secrets.put(WHO, name, SecretWish(value), app)
    await secrets.put(WHO, "OPEN", SecretWish("everybody-may-read", sensitive=False))
    await secrets.put(system(OTHER, "test"), "C", SecretWish("value-of-other-team"))
    check = PromptSecrets(store, SystemClock(), secrets).check
    await check(WHO, {"OPEN": "everybody-may-read", "C": "value-of-other-team"})
    for value in kept:
        with pytest.raises(InvalidRequest, match="holds the value of a secret"):
            await check(WHO, {"guess": f"it is {value}!"})
    with pytest.raises(InvalidRequest, match="is called like a secret"):
        await check(WHO, {"B": "x"})
    listed = await store.read(lambda tx: tx.audit.after(0, 100, team_id=TEAM))
    refused = [each for each in listed if each.action == "task.refuse"]
    assert [each.actor for each in refused] == [WHO.actor] * (len(kept) + 1)
    assert not any(value in str(each.detail) for value in kept for each in refused)


async def test_what_another_process_seals_during_a_rotation_stays_readable(
    store, vault, secrets, tmp_path
):
    other = Secrets(store, SystemClock(), KeyVault.open_place(tmp_path, {}))
    await other.put(WHO, "BEFORE", SecretWish("1"))
    await secrets.rotate(WHO)
    await other.put(WHO, "AFTER", SecretWish("2"))
    assert await secrets.value_for(TEAM, "AFTER", Use.CONTROL_PLANE) == "2"
    assert await other.value_for(TEAM, "BEFORE", Use.CONTROL_PLANE) == "1"


def test_the_key_file_is_made_once_and_refused_when_others_can_read_it(tmp_path):
    first = KeyVault.open_place(tmp_path, {})
    file = tmp_path / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert KeyVault.open_place(tmp_path, {}).key_id == first.key_id
    for mode in (0o640, 0o604, 0o660):
        file.chmod(mode)
        with pytest.raises(InvalidRequest, match="can be read by others") as refused:
            KeyVault.open_place(tmp_path, {})
        assert "chmod 600" in refused.value.remediation
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_a_key_of_the_environment_is_used_and_nothing_is_written(tmp_path):
    new, old = key(), key()
    before = KeyVault.open_place(tmp_path, {VARIABLE: old})
    sealed = before.seal(b"x", b"place")
    with pytest.raises(InvalidRequest, match="only you can make a new one"):
        before.begin_rotation()
    both = KeyVault.open_place(tmp_path, {VARIABLE: f"{new},{old}"})
    assert both.open(sealed.text, b"place") == b"x"
    assert both.begin_rotation() != before.key_id
    with pytest.raises(Unavailable, match="which is not here"):
        KeyVault.open_place(tmp_path, {VARIABLE: new}).open(sealed.text, b"place")
    for wrong in ("short", base64.b64encode(b"x" * 31).decode(), ","):
        with pytest.raises(InvalidRequest) as refused:
            KeyVault.open_place(tmp_path, {VARIABLE: wrong})
        assert wrong not in str(refused.value) or wrong == ","
    assert list(tmp_path.iterdir()) == []
