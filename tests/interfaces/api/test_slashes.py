"""A path with a slash too many is no route, and says so as every other error does."""

import pytest


@pytest.mark.proves("Q1")
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/sandboxes/", "/v1/tokens/", "/healthz/", "/v1//sandboxes"])
async def test_a_slash_too_many_is_a_404_with_a_body(plane, method, path):
    answer = await plane.admin.call(method, path, allow_redirects=False)
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert path in answer.error["message"]
    assert answer.error["remediation"]
    assert answer.error["request_id"] == answer.headers["X-Request-ID"]
