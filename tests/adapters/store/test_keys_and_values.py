"""Idempotency keys and named values on both databases."""

import asyncio

import pytest

from paddock.domain.errors import Conflict, InvalidRequest


def claim(key, object_id, *, team="tem_1", fingerprint="same", now=1.0):
    return lambda tx: tx.keys.claim(
        team, key, fingerprint=fingerprint, object_id=object_id, now=now
    )


async def test_a_key_stands_for_what_it_made_first(store):
    assert await store.write(claim("k", "sbx_1")) == "sbx_1"
    assert await store.write(claim("k", "sbx_2")) == "sbx_1"
    assert await store.write(claim("k", "sbx_3", team="tem_2")) == "sbx_3"


async def test_a_key_for_another_request_is_a_conflict(store):
    await store.write(claim("k", "sbx_1"))
    with pytest.raises(Conflict, match="'k' was used for another request, which made sbx_1"):
        await store.write(claim("k", "sbx_2", fingerprint="other"))


async def test_of_many_claims_at_once_one_wins(store):
    won = await asyncio.gather(*(store.write(claim("k", f"sbx_{n}")) for n in range(50)))
    assert len(set(won)) == 1


async def test_a_released_key_can_be_claimed_again(store):
    await store.write(claim("k", "sbx_1"))
    await store.write(lambda tx: tx.keys.release("tem_2", "sbx_1"))
    assert await store.write(claim("k", "sbx_2")) == "sbx_1"
    await store.write(lambda tx: tx.keys.release("tem_1", "sbx_1"))
    assert await store.write(claim("k", "sbx_2", fingerprint="other")) == "sbx_2"


async def test_old_keys_are_pruned_oldest_first(store):
    for n in range(5):
        await store.write(claim(f"k{n}", "old", now=float(n)))
    assert await store.write(lambda tx: tx.keys.prune(4.0, 3)) == 3
    assert await store.write(claim("k2", "new")) == "new"
    assert await store.write(claim("k3", "new")) == "old"


@pytest.mark.parametrize("value", [0, "", [], {"a": [1.5, None, "\0"]}, "é", 2**70, False])
async def test_a_value_comes_back_as_it_was(store, value):
    await store.write(lambda tx: tx.values.put("x", "before"))
    await store.write(lambda tx: tx.values.put("x", value))
    assert await store.read(lambda tx: tx.values.get("x")) == value


async def test_a_value_can_be_removed(store):
    assert await store.read(lambda tx: tx.values.get("x")) is None
    await store.write(lambda tx: tx.values.put("x", 1))
    for _ in range(2):
        await store.write(lambda tx: tx.values.remove("x"))
    assert await store.read(lambda tx: tx.values.get("x")) is None


async def test_values_are_found_by_prefix(store):
    named = {"a": 1, "key.1": 2, "key.2": 3, "key": 4, "KEY.3": 5, "keyé": 6}
    await store.write(lambda tx: [tx.values.put(*pair) for pair in named.items()] and None)
    assert await store.read(lambda tx: tx.values.all("key.")) == {"key.1": 2, "key.2": 3}
    assert await store.read(lambda tx: tx.values.all("")) == named


async def test_adding_keeps_what_is_there(store):
    assert await store.write(lambda tx: tx.values.add("x", {"a": (1,)})) == {"a": [1]}
    assert await store.write(lambda tx: tx.values.add("x", 2)) == {"a": [1]}


async def test_what_is_not_json_is_refused(store):
    with pytest.raises(InvalidRequest, match="cannot be kept as JSON"):
        await store.write(lambda tx: tx.values.put("x", {"a": float("nan")}))
