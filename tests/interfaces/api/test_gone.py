"""What was deleted stays as it was, and says so to whoever wants to change it."""

import pytest

from tests.control_plane import disposable


@pytest.fixture(scope="module")
async def plane():
    async with disposable() as made:
        yield made


@pytest.fixture(scope="module")
async def gone(plane):
    box = await plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "leaving"})
    assert box.status == 201, box.body
    assert (await plane.admin.delete(f"/v1/sandboxes/{box['id']}")).status == 200
    return box


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("PATCH", "", {"name": "another", "labels": {"a": "b"}}),
        ("PUT", "/env", {"env": {"A": "1"}}),
        ("POST", "/ports/80/links", {}),
        ("DELETE", "/links", None),
        ("PUT", "/policy", {"default": "deny", "rules": []}),
        ("PUT", "/egress", {"mode": "none"}),
        ("GET", "/metrics", None),
        ("POST", "/start", {}),
        ("POST", "/exec", {"cmd": ["true"]}),
    ],
)
async def test_nothing_of_a_deleted_sandbox_can_be_changed(plane, gone, method, rest, body):
    answer = await plane.admin.call(method, f"/v1/sandboxes/{gone['id']}{rest}", body)
    assert answer.status == 409, (answer.status, answer.body)
    error = answer.body["error"]
    assert "leaving" in error["message"]
    assert error["remediation"]
    after = await plane.admin.get(f"/v1/sandboxes/{gone['id']}")
    assert (after["state"], after["name"], after["labels"]) == ("deleted", "leaving", {})
