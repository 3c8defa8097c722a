"""The id of a request: in its answer, in every line that it logs, and in what a client shows."""

import io
import logging

import pytest

from paddock import telemetry
from paddock.domain.errors import Conflict, PaddockError, Unavailable
from paddock.interfaces.cli.failures import say
from paddock.interfaces.client.failures import from_answer
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable


class Absent(ReferenceProvider):
    """A provider that cannot be reached when it matters."""

    async def create(self, key, spec):
        raise Unavailable("the provider is on holiday", remediation="wait")


@pytest.fixture
def lines():
    """What was logged so far; the log is as before afterwards."""
    logger, stream = logging.getLogger("paddock"), io.StringIO()
    before = logger.handlers, logger.level, logger.propagate
    telemetry.set_up("debug", stream)
    yield lambda: stream.getvalue().splitlines()
    logger.handlers, logger.level, logger.propagate = before


@pytest.mark.proves("Q1")
async def test_a_failure_of_the_server_is_in_the_log_under_its_id(lines):
    async with disposable(provider=Absent) as plane:
        answer = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    assert answer.status == 503
    identifier = answer.error["request_id"]
    assert answer.headers["x-request-id"] == identifier
    told = [line for line in lines() if f"request={identifier}" in line]
    assert any("sandbox could not be made" in line for line in told), "by what it began, too"
    failed = next(line for line in told if "request could not be fulfilled" in line)
    assert " warning " in failed
    assert "code=provider_unavailable" in failed


async def test_what_the_caller_did_wrong_is_no_failure_of_the_server(lines, plane):
    answer = await plane.admin.get("/v1/sandboxes/nothing")
    assert answer.status == 404
    assert not [line for line in lines() if "could not be fulfilled" in line]


def received(status: int, kind: type[PaddockError]) -> PaddockError:
    body = b'{"error": {"code": "%b", "message": "m", "request_id": "req_1"}}' % kind.code.encode()
    return from_answer(status, body)


def test_the_command_line_shows_the_id_where_the_log_has_more(capsys):
    error = received(503, Unavailable)
    assert (type(error), error.request_id) == (Unavailable, "req_1")
    say(error, as_json=False)
    assert "request: req_1" in capsys.readouterr().err
    say(received(409, Conflict), as_json=False)
    assert "req_1" not in capsys.readouterr().err
    say(received(409, Conflict), as_json=True)
    assert '"request_id": "req_1"' in capsys.readouterr().err
    say(Unavailable("here"), as_json=False)
    assert "request:" not in capsys.readouterr().err
