"""Cases of the catalogue of failures that no other test shows."""

import asyncio

import pytest

from paddock.domain.errors import Unavailable
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable


class Reluctant(SimulatedProvider):
    """One that removes nothing while it is away."""

    away = False

    async def destroy(self, ref):
        if Reluctant.away:
            raise Unavailable("the machine room is locked")
        return await super().destroy(ref)


@pytest.mark.timeout(120)
@pytest.mark.proves("L12")
async def test_what_is_being_deleted_is_tried_again_until_its_provider_can():
    async with disposable(provider=Reluctant) as plane:
        made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
        path = f"/v1/sandboxes/{made['id']}"
        Reluctant.away = True
        try:
            left = await plane.admin.delete(path)
            assert (left.status, left["state"]) == (202, "deleting"), left.body
            await plane.rounds.reconciler.look()
            assert (await plane.admin.get(path))["state"] == "deleting"
        finally:
            Reluctant.away = False
        async with asyncio.timeout(60):
            while (await plane.admin.get(path))["state"] != "deleted":
                await plane.rounds.reconciler.look()
                await asyncio.sleep(0.05)
