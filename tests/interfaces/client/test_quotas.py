"""Quotas of teams, by the SDK against a live server."""

import pytest

from paddock import AsyncQuotas, Forbidden, Quotas, Server


async def test_operators_set_quotas_and_members_see_them(server):
    async with server:
        made = await server.call("POST", "/v1/teams", json={"name": "small"})
        found = await AsyncQuotas.set("small", {"sandboxes": 3, "cpus": "unlimited"}, server=server)
        known = {each.name: each for each in found}
        assert (known["sandboxes"].limit, known["sandboxes"].own) == (3, True)
        assert (known["cpus"].limit, known["cpus"].own) == (None, True)
        found = await AsyncQuotas.set("small", {"cpus": None}, server=server)
        assert {each.name: each.own for each in found}["cpus"] is False
        mine = await AsyncQuotas.list(server=server)
        assert {each.name: each.limit for each in mine}["sandboxes"] is None
        async with Server(server.url, made["token"]["token"]) as member:
            (boxes,) = [e for e in await AsyncQuotas.list(server=member) if e.name == "sandboxes"]
            assert (boxes.used, boxes.limit) == (0, 3)
            with pytest.raises(Forbidden):
                await AsyncQuotas.set("small", {"sandboxes": 9}, server=member)


def test_programs_without_an_event_loop_see_them_too(server):
    names = {each.name for each in Quotas.list(server=server)}
    assert {"sandboxes", "disk_mib", "sandbox_events_mib"} <= names
