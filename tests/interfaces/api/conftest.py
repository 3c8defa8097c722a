"""A control plane on the reference provider, shared by the tests of one module."""

import pytest

from tests.control_plane import disposable


@pytest.fixture(scope="module")
async def plane(database):
    async with disposable(database=database) as made:
        yield made


@pytest.fixture
async def box(plane):
    """A running sandbox of the operating team."""
    answer = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    assert answer.status == 201, answer.body
    yield answer.body
    await plane.admin.delete(f"/v1/sandboxes/{answer['id']}?force=true")


@pytest.fixture
async def home(plane, box):
    """Where the sandbox keeps its files; the reference provider's user has a home elsewhere."""
    ran = await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["pwd"]})
    return ran["stdout"].strip()
