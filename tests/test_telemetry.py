"""Log lines: one event each, key=value, and nothing in them can pretend to be another line."""

import io
import logging
import re

import pytest

from paddock import telemetry

LOG = logging.getLogger("paddock.tests")


@pytest.fixture
def lines():
    """What was logged so far, line by line; the log is as before afterwards."""
    logger, stream = logging.getLogger("paddock"), io.StringIO()
    before = logger.handlers, logger.level, logger.propagate
    telemetry.set_up("debug", stream)
    yield lambda: stream.getvalue().splitlines()
    logger.handlers, logger.level, logger.propagate = before


def test_a_line_has_time_level_logger_event_and_values(lines):
    LOG.warning("sandbox created", extra={"sandbox": "local/1", "template": "two words"})
    (line,) = lines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning paddock\.tests: "
        r'sandbox created sandbox=local/1 template="two words"',
        line,
    )


def test_what_is_logged_cannot_begin_a_line_or_reach_the_terminal(lines):
    LOG.error("output was\nfake line\x1b[31m", extra={"said": 'a "b"\n'})
    (line,) = lines()
    assert line.endswith(r'output was\nfake line\x1b[31m said="a \"b\"\n"')


def test_bound_values_are_on_every_line_inside(lines):
    with telemetry.bound(request="r1"), telemetry.bound(task="t1"):
        LOG.info("task started")
    LOG.info("task forgotten")
    first, second = lines()
    assert first.endswith("task started request=r1 task=t1")
    assert second.endswith("task forgotten")


def test_a_traceback_is_indented_below_its_line(lines):
    try:
        raise ValueError("odd\nvalue")
    except ValueError:
        LOG.exception("request failed")
    first, *rest = lines()
    assert first.endswith("request failed")
    assert all(line.startswith("    ") for line in rest)


def test_the_level_decides_what_is_written(lines):
    telemetry.set_up("error", stream := io.StringIO())
    LOG.warning("disk filled up")
    assert stream.getvalue() == ""


def test_provider_calls_are_logged_with_their_outcome(lines):
    telemetry.observe_call("local", "create", 0.0123, "ok")
    (line,) = lines()
    assert line.endswith("provider=local operation=create outcome=ok milliseconds=12.3")
