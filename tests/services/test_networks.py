"""What of a sandbox's network is ours."""

from dataclasses import replace

import pytest

from paddock.domain.egress import EgressWish, NetworkMode, doors
from paddock.services.networks import is_fence
from tests.domain.test_records import record


@pytest.mark.parametrize("port", sorted(doors.ALL))
def test_where_the_gateway_listens_is_no_program(port):
    fenced = record(egress=EgressWish(NetworkMode.ALLOWLIST))
    assert is_fence(fenced, port, "127.0.0.1")
    assert not is_fence(fenced, port, "0.0.0.0")
    assert not is_fence(fenced, 8000, "127.0.0.1")
    assert not is_fence(replace(fenced, egress=EgressWish(NetworkMode.OPEN)), port, "127.0.0.1")
